"""Chaos: faults under load, and an audit of what was acknowledged (`make chaos`, python -m tests.chaos).

A scenario is a row (`scenario.Scenario`): a name, the databases it is played on, how often its fault is injected, and a
function that is given a `Stage`. The stage has a service in a process of its own over a fresh database, clients whose
contents are known by their keys (`contents`), and a ledger of what was acknowledged (`ledger`). After the function the
command ends the service, opens the database (`audit`) and counts what is lost, doubled and wrong.

To add a scenario, write a module in `scenarios` with a tuple SCENARIOS, and name it in docs/reliability.md, in the row
of its fault; it is found by itself:

    def freeze(stage: Stage) -> None:
        stage.start()
        with stage.load():                       # clients post until the end of the block
            for _ in stage.trials():             # tells its progress
                with stage.recovering():         # seconds from here to the next acknowledgement
                    ...

    SCENARIOS = (Scenario("server frozen", freeze, full=3, quick=1),)

A promise that is no matter of the database is held by `stage.promise(seconds < 1, f"answers took {seconds} s")`, a
figure that the report tells by `stage.measured["peak, MiB"] = 12`. A control (`control=True`) plants a defect: it must
lose, double or spoil something, and its row fails where nothing was found. A scenario that needs a program calls
`stage.needs("strace")` and is skipped, loudly, where that is not installed. What a scenario starts it ends by
`stage.stack`; all its loops are bounded, and it is broken off after `limit` seconds.
"""
