"""`penstock warm`: compile kernels in advance, and pack them for other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import Json, JsonOut, errors_in_one_line, parts_of, progress_bar, writable
from penstock.cli.signs import speaks


@errors_in_one_line
@speaks("preparing")
def warm(
    policies: Annotated[
        list[str] | None,
        typer.Option("--policies", help="Policies, separated by commas, or all.", show_default="auto"),
    ] = None,
    operators: Annotated[
        list[str] | None,
        typer.Option(
            "--operators", help="Any of join, outer, asof, many, cache, match and query.", show_default="all"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Pack the kernels into this tar file.", show_default=False)
    ] = None,
    json: Json = None,
) -> None:
    """Compile kernels now so that later runs do not wait, and pack them for the machines of a cluster."""
    sink = JsonOut(json)
    out = writable(out)
    with progress_bar() as report:
        report(0, 1, "loading")
        from penstock.compiler.code_cache import folder
        from penstock.policies import caching_names, names
        from penstock.warm import pack
        from penstock.warm import warm as compile_all

        wanted = parts_of(policies) or ["auto"]
        if wanted == ["all"]:
            wanted = list(dict.fromkeys([*names(), *caching_names()]))
        files = compile_all(wanted, parts_of(operators) or None, report=report)
    if out is not None:
        pack(files, out)
    size = sum(path.stat().st_size for path in files)
    sink.write({"folder": str(folder()), "kernels": len(files), "bytes": size, "out": out})
    if sink.alone:
        return
    sink.screen.print(f"{len(files)} kernels, {size / 2**20:.1f} MiB, in {folder()}")
    if out is not None:
        sink.screen.print(
            f"packed into {out}; unpack it on each machine and set PENSTOCK_CACHE_DIR to the folder"
        )
