"""The notebooks of the documentation run, and show what they promise: outputs and pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from site_pages.notebooks import as_ipynb, as_markdown, cells_of, run
from site_pages.tutorials import ORDER, in_a_folder_of_its_own, sources

PNG = b"\x89PNG"


def uses_spark(path: Path) -> bool:
    return "pyspark" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.spark] * uses_spark(path)) for path in sources()],
)
def test_notebooks_run(path: Path, request: pytest.FixtureRequest) -> None:
    if uses_spark(path):
        request.getfixturevalue("spark")
    with in_a_folder_of_its_own():
        cells = run(path)
    page, pictures = as_markdown(cells, path.stem)
    assert page.startswith("# ")
    assert pictures
    assert all(picture.startswith(PNG) and f"({name})" in page for name, picture in pictures.items())
    assert any(cell.printed for cell in cells)
    outputs = [output for cell in json.loads(as_ipynb(cells))["cells"] for output in cell.get("outputs", ())]
    assert {"stream", "display_data"} <= {output["output_type"] for output in outputs}


def test_the_notebooks_of_the_navigation_are_there() -> None:
    assert {path.stem for path in sources()} >= set(ORDER)


def test_outputs_are_those_of_a_kernel(tmp_path: Path) -> None:
    path = tmp_path / "small.py"
    path.write_text(
        "# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nprint('said')\n1 + 1\n\n# %%\nimport pandas as pd\n"
        "pd.DataFrame({'a': [1]})\n\n# %%\nfrom matplotlib import pyplot as plt\n_ = plt.plot([1, 2])\n"
        "plt.show()\n"
    )
    text, both, table, drawn = run(path)
    assert (text.kind, text.text) == ("markdown", "# Title\n\nText.")
    assert (both.printed, both.value) == ("said\n", "2")
    assert "<table" in table.table
    assert [picture[:4] for picture in drawn.pictures] == [PNG]
    page, pictures = as_markdown([text, both, table, drawn], "small")
    assert list(pictures) == ["small-1.png"]
    assert "![Output of the cell above](small-1.png)" in page
    assert "<style" not in page


def test_an_error_has_the_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("# %% [markdown]\n# # Title\n\n# %%\nx = 1\n1 / 0\n")
    with pytest.raises(ZeroDivisionError) as caught:
        run(path)
    last = caught.traceback[-1]
    assert (str(last.path), last.lineno + 1) == (str(path), 6)
    assert [cell.line for cell in cells_of(path)] == [2, 5]
