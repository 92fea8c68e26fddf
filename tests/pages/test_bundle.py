"""Bundles hold every script that a page needs, each after those that it needs, and refuse what they cannot hold."""

import re

import pytest
from offpolicy_monitor.pages import assets, bundle

FILES = {
    "pages/a.js": 'import { one, two } from "../lib/b.js";\nimport { C } from "./a/c.js";\n\nawait two(one, C);\n',
    "pages/a/c.js": 'import {\n  one,\n} from "../../lib/b.js";\n\nexport class C {}\nclass D {}\n',
    "lib/b.js": "export const one = 1;\nexport async function two() {}\nexport function $three() {}\nconst four = 4;\n",
}


def test_a_script_comes_last_and_each_after_those_that_it_needs() -> None:
    assert bundle.order("pages/a.js", FILES.__getitem__) == ["lib/b.js", "pages/a/c.js", "pages/a.js"]
    text = bundle.script("pages/a.js", FILES.__getitem__)
    assert re.findall(r"^return (.*);$", text, re.M) == ["{ one, two, $three }", "{ C }"]
    of_page = """const { one, two } = modules["lib/b.js"];
const { C } = modules["pages/a/c.js"];

await two(one, C);
"""
    assert text.endswith(of_page)
    assert "export" not in text and "import" not in text


@pytest.mark.parametrize(
    "line",
    [
        'import "./b.js";',
        'import * as b from "./b.js";',
        'import { one } from "b";',
        "export default 5;",
        "export let five = 5;",
        "export { one };",
        'export const { five } = "b";',
    ],
)
def test_other_forms_of_import_and_export_are_refused_by_the_name_of_the_file(line: str) -> None:
    files = {**FILES, "lib/b.js": FILES["lib/b.js"] + line}
    with pytest.raises(ValueError, match=r"lib/b\.js: a form of import or export"):
        bundle.script("pages/a.js", files.__getitem__)


def test_scripts_that_need_each_other_and_those_that_are_not_there_are_refused() -> None:
    round_about = {**FILES, "lib/b.js": 'import { C } from "../pages/a/c.js";\n'}
    with pytest.raises(ValueError, match=r"lib/b\.js imports itself by way of pages/a/c\.js"):
        bundle.script("pages/a.js", round_about.__getitem__)
    with pytest.raises(KeyError, match=r"lib/none\.js"):
        bundle.script("pages/a.js", {"pages/a.js": 'import { x } from "../lib/none.js";'}.__getitem__)


def test_every_script_is_in_some_bundle_and_none_ends_the_element_that_holds_it() -> None:
    held = {name for script in assets.SCRIPTS for name in assets.imported(script)}
    assert held == {name for name in assets.FILES if re.fullmatch(r"(charts|lib|pages)/.*\.js", name)}
    for script in assets.SCRIPTS:
        assert not re.search(r"</script|<!--", assets.text(script), re.I)
