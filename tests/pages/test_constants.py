"""What a script says by itself, and the service too, is the same."""

import re

from offpolicy_monitor.pages import assets
from offpolicy_monitor.vocabulary import BELIEVED


def test_a_page_believes_a_cause_from_the_score_from_which_the_service_does() -> None:
    assert re.findall(r"^const BELIEVED = (.+);$", assets.text("pages/diagnosis.js"), re.M) == [str(BELIEVED)]
