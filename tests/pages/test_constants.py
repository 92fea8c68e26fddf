"""What a script says by itself, and the service too, is the same."""

import json
import re

from offpolicy_monitor.pages import assets
from offpolicy_monitor.vocabulary import BELIEVED, VERDICTS


def test_a_page_believes_a_cause_from_the_score_from_which_the_service_does() -> None:
    assert re.findall(r"^const BELIEVED = (.+);$", assets.text("pages/diagnosis.js"), re.M) == [str(BELIEVED)]


def test_a_page_has_keys_for_all_verdicts_from_the_best_to_the_worst() -> None:
    assert f"{json.dumps(VERDICTS)}.flatMap(key)" in assets.text("pages/run/steps.js")
