"""Open environment, trajectory and credit streams with pyarrow, polars and
DuckDB, as they are, and demand that both encodings say the same.

Needs the odyssey commands on PATH and the packages of requirements.txt.
"""

import json
import pathlib
import subprocess
import tempfile

import duckdb
import polars
import pyarrow as pa
import pyarrow.ipc


def shell(line):
    subprocess.run(["bash", "-euo", "pipefail", "-c", line], check=True)


def jsonl_rows(path):
    """Rows of a JSONL stream: between the header and the end record."""
    lines = path.read_text(encoding="utf-8").splitlines()
    header, rows, end = json.loads(lines[0]), [json.loads(l) for l in lines[1:-1]], json.loads(lines[-1])
    assert "odyssey" in json.dumps(header), f"{path}: no header"
    assert end["end"] == len(rows), f"{path}: {len(rows)} rows, its end record says {end['end']}"
    return rows


def check(kind, jsonl, arrows, id_column, ids):
    rows = jsonl_rows(jsonl)
    with pa.OSFile(str(arrows)) as source:
        table = pa.ipc.open_stream(source).read_all()
    frame = polars.read_ipc_stream(arrows)
    database = duckdb.connect()
    database.register("arrow_rows", table)
    from_arrow = database.execute(f"select {id_column} from arrow_rows").fetchall()
    from_json = database.execute(
        f"select {id_column} from read_json('{jsonl}', format='newline_delimited', maximum_object_size=100000000)"
        f" where {id_column} is not null").fetchall()
    want = [r[id_column] for r in rows]
    assert want, f"{kind}: no rows"
    assert table.column(id_column).to_pylist() == want, f"{kind}: pyarrow"
    assert frame[id_column].to_list() == want, f"{kind}: polars"
    assert [r[0] for r in from_arrow] == want, f"{kind}: duckdb over arrow"
    assert [r[0] for r in from_json] == want, f"{kind}: duckdb over jsonl"
    for name in ids:
        assert table.column(name).to_pylist() == [r[name] for r in rows], f"{kind}: {name} differs"
        assert frame[name].to_list() == [r[name] for r in rows], f"{kind}: {name} differs in polars"
    print(f"{kind}: {len(rows)} rows agree in pyarrow {pa.__version__}, polars {polars.__version__}, duckdb {duckdb.__version__}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shell(f"odyssey-seed -q --builtin | odyssey-tools -q | odyssey-tasks -q --per 4 | odyssey-verify -q -o {folder}/e.jsonl")
        shell(f"odyssey-rollout -q --policy builtin --groups 4 -G 4 --steps 1 -o {folder}/t.jsonl {folder}/e.jsonl")
        shell(f"odyssey-hca -q -o {folder}/c.jsonl {folder}/t.jsonl")
        for command, name in (("verify", "e"), ("rollout", "t"), ("hca", "c")):
            source = {"e": "| odyssey-tools -q | odyssey-tasks -q --per 4 | odyssey-verify -q"}.get(name)
            if source:
                shell(f"odyssey-seed -q --builtin {source} -o {folder}/e.arrows")
            elif name == "t":
                shell(f"odyssey-rollout -q --policy builtin --groups 4 -G 4 --steps 1 -o {folder}/t.arrows {folder}/e.jsonl")
            else:
                shell(f"odyssey-hca -q -o {folder}/c.arrows {folder}/t.arrows")
        check("environment", folder / "e.jsonl", folder / "e.arrows", "environment_id", ["domain", "split", "tools", "tasks"])
        check("trajectory", folder / "t.jsonl", folder / "t.arrows", "trajectory_id", ["token_ids", "loss_mask", "turns", "failures", "reward"])
        check("credit", folder / "c.jsonl", folder / "c.arrows", "trajectory_id", ["credit_mask", "advantage", "return", "baseline"])


main()
