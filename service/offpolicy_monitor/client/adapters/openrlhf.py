"""OpenRLHF: what an `ActorPPOTrainer` computes its loss from, posted when DeepSpeed's gradient step is over.

Stands around members of one trainer: the loss (padded [B, A], action tokens alone), the micro-batch's step, the
training of one rollout, the broadcast of weights, and the saving of the model. Knows their arguments and the trainer's
device mesh; imports nothing of OpenRLHF.
"""

from typing import Any, TypeVar

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.ends import finish
from offpolicy_monitor.client.adapters.shared.gathered import Gathered
from offpolicy_monitor.client.adapters.shared.layouts import all_rows
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.unseen import Unseen

Trainer = TypeVar("Trainer")


def watch(trainer: Trainer, monitor: Logs, *, first_step: int = 1) -> Trainer:
    """Post every gradient step of an `ActorPPOTrainer`, or of a subclass, to `monitor`; gives back the same trainer.

    Sent: pi; pi_old; mu where vLLM returned it; advantages; the action mask. `step` counts the rollouts trained on, as
    OpenRLHF's own logs do, from `first_step` on; `minibatch` the optimizer's steps on one of them, over all epochs;
    `policy_version` the broadcasts of weights to vLLM, on from `first_step` - 1. A shard is a data-parallel rank; of
    the ranks that share a sequence (ring attention, tensor parallelism) the first posts, and it has all of it: the
    actor gathers the log-probs of the ring before its loss. Where the model is saved after training, the run has ended.
    """
    Watch(trainer, monitor, first_step).attach()
    return trainer


class Watch:
    """Counts rollouts, micro-batches and broadcasts of one trainer on one rank."""

    def __init__(self, trainer: Any, monitor: Logs, first_step: int) -> None:
        self.trainer, self.monitor, self.gathered = trainer, monitor, Gathered()
        self.loss, self.step_on, self.train_on = trainer.actor_loss_fn, trainer.training_step, trainer.ppo_train
        self.broadcast, self.save = trainer.broadcast_to_vllm, trainer.strategy.save_model
        self.step, self.minibatch, self.forwards, self.version = first_step, 0, 0, first_step - 1
        self.unseen = Unseen("OpenRLHF's actor_loss_fn", "the trainer computes its loss without it")

    def attach(self) -> None:
        """Take the place of the members on this trainer and its strategy, not on their classes."""
        self.trainer.actor_loss_fn = self.losing
        self.trainer.training_step = self.stepping
        self.trainer.ppo_train = self.training
        self.trainer.broadcast_to_vllm = self.broadcasting
        self.trainer.strategy.save_model = self.saving

    def losing(self, log_probs: Any, old_log_probs: Any, advantages: Any, **named: Any) -> Any:
        """The loss's own result for one micro-batch."""
        self.unseen.forward()
        _collect(self.monitor, self.gathered, log_probs, old_log_probs, advantages, named)
        return self.loss(log_probs, old_log_probs, advantages, **named)

    def stepping(self, experience: Any, kl_ctl: Any, step: int, *arguments: Any, **named: Any) -> Any:
        """The trainer's own status; where the optimizer stepped, what was gathered is posted."""
        status = self.step_on(experience, kl_ctl, step, *arguments, **named)
        self.forwards += 1
        _post(self.monitor, self, step)
        return status

    def training(self, *arguments: Any, **named: Any) -> Any:
        """One rollout, all epochs."""
        status = self.train_on(*arguments, **named)
        self.unseen.step()
        self.step, self.minibatch = self.step + 1, 0
        return status

    def broadcasting(self, *arguments: Any, **named: Any) -> Any:
        """The engines get new weights."""
        result = self.broadcast(*arguments, **named)
        self.version += 1
        return result

    def saving(self, model: Any, tokenizer: Any, output_dir: str, *arguments: Any, **named: Any) -> Any:
        """A model was saved; OpenRLHF does so after training."""
        result = self.save(model, tokenizer, output_dir, *arguments, **named)
        _end(self.monitor, self.trainer.args, output_dir)
        return result


@quiet
def _collect(monitor: Logs, gathered: Gathered, pi: Any, old: Any, advantages: Any, named: dict[str, Any]) -> None:
    arrays = {
        "sampling_logprobs": named.get("rollout_log_probs"),
        "old_logprobs": old,
        "logprobs": pi,
        "advantages": advantages,
        "mask": named["action_mask"],
    }
    gathered.add(all_rows(arrays))


@quiet
def _post(monitor: Logs, watch: Watch, step: int) -> None:
    if stepped(watch.trainer, step, watch.forwards):
        minibatch, watch.minibatch = watch.minibatch, watch.minibatch + 1
        numbers = {"minibatch": minibatch, "policy_version": watch.version}
        watch.gathered.post(monitor, place(watch.trainer.strategy), step=watch.step, **numbers)


@quiet
def _end(monitor: Logs, args: Any, output_dir: str) -> None:
    """Checkpoints in the middle of training lie elsewhere."""
    if output_dir == args.ckpt.output_dir:
        finish(monitor)


def stepped(trainer: Any, step: int, forwards: int) -> bool:
    """Whether the optimizer stepped after micro-batch `step` of its epoch, the `forwards`-th of all.

    DeepSpeed counts micro-batches on through epochs and rollouts; dynamic batches say it themselves.
    """
    if trainer.args.train.dynamic_batch_enable:
        return bool(trainer.replay_buffer.dynamic_optimizer_step[step])
    return forwards % max(1, int(trainer.strategy.accumulated_gradient)) == 0


def place(strategy: Any) -> tuple[int, int] | None:
    """(data-parallel rank, their number), or None where another rank has the same sequences."""
    mesh = strategy.ds_device_mesh
    if mesh["sp"].get_local_rank() or mesh["tp"].get_local_rank():
        return None
    return mesh["dp"].get_local_rank(), mesh["dp"].size()
