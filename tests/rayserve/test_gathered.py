"""Expositions of several replicas become one, each family once, each sample with its replica."""

from offpolicy_monitor.rayserve.gathered import Lines, labelled

FIRST = b"""# HELP a_total All.
# TYPE a_total counter
a_total{run="x {y}"} 3.0
# HELP b What.
# TYPE b gauge
b 1.0
"""
SECOND = b"""# HELP b What.
# TYPE b gauge
b 2.0
# HELP c Of runs.
# TYPE c gauge
c{run="z"} 7.0
"""


def test_each_family_comes_once_with_the_samples_of_all() -> None:
    gathered = Lines()
    gathered.add(SECOND, None, lambda name: name == "c")
    for name, text in (("one", FIRST), ("two", SECOND)):
        gathered.add(text, name, lambda name: name != "c")
    assert (
        gathered.whole()
        == b"""# HELP c Of runs.
# TYPE c gauge
c{run="z"} 7.0
# HELP a_total All.
# TYPE a_total counter
a_total{replica="one",run="x {y}"} 3.0
# HELP b What.
# TYPE b gauge
b{replica="one"} 1.0
b{replica="two"} 2.0
"""
    )


def test_the_label_comes_first_whatever_the_others_hold() -> None:
    assert labelled(b"a 1", "r") == b'a{replica="r"} 1'
    assert labelled(b'a{b="{ }"} 1', "r") == b'a{replica="r",b="{ }"} 1'
