"""The command ``trace``."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.judging import Run, tell
from inputmeta.conformance.campaign.reducing import reduce_roots
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.campaign.summary import Report
from inputmeta.conformance.campaign.trace import TraceResult, replay_trace
from inputmeta.conformance.cases.request import store_case
from inputmeta.conformance.commands import options
from inputmeta.conformance.commands.reports import reported
from inputmeta.conformance.commands.trace_progress import TraceProgress, part_of, summary_lines
from inputmeta.conformance.console import conclusion, fail, is_quiet, remark, say
from inputmeta.conformance.interrupts import held
from inputmeta.conformance.trace import TraceError, TraceOptions, count_requests, read_trace
from inputmeta.conformance.workers.target import Target

DEFAULTS = TraceOptions()


class YocoMode(StrEnum):
    """The modes of prefill truncation, as choices of the command line."""

    OFF = "off"
    MASK = "mask"
    COMPACT = "compact"


app = options.command_app()


@app.command()
@options.with_target(in_process=True, without=["valid_only"])
def trace(
    target: Target,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="request trace, one JSON object a line (Mooncake)")],
    limit: Annotated[int | None, typer.Option(min=1, help="requests to replay; all if left out")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of acceptance, generated tokens and row choice")] = DEFAULTS.seed,
    rows: Annotated[str, typer.Option(help="rows a sequence to compare, or all; all are built")] = str(DEFAULTS.rows),
    drafts: Annotated[int, typer.Option(min=0, help="speculative tokens of a decode row")] = DEFAULTS.drafts,
    acceptance: Annotated[float, typer.Option(min=0, max=1, help="chance of a draft")] = DEFAULTS.acceptance,
    chunk: Annotated[int, typer.Option(min=1, help="prompt tokens of a step")] = DEFAULTS.chunk_tokens,
    running: Annotated[int, typer.Option(min=1, help="sequences at once")] = DEFAULTS.max_running,
    blocks: Annotated[int, typer.Option(min=1, help="physical KV blocks")] = DEFAULTS.total_blocks,
    zos: Annotated[bool, typer.Option("--zos", help="decode by the ZOS path instead of the eager one")] = False,
    cp: Annotated[int, typer.Option(min=1, help="context parallel ranks, checked in turn")] = DEFAULTS.cp_size,
    yoco: Annotated[YocoMode, typer.Option(help="prefill truncation")] = YocoMode.OFF,
    keep: Annotated[int, typer.Option(min=0, help="tokens truncation keeps")] = DEFAULTS.yoco_prefill_keep_tokens,
    save_case: Annotated[int | None, typer.Option(min=0, metavar="STEP", help="save this step as a case file")] = None,
    save_dir: options.SaveDirOption = options.SAVE_DIR,
    html: options.HtmlOption = None,
) -> None:
    """Replay a request trace through a continuous-batching scheduler, every step checked against the oracle.

    Chunked prefill, prefix hits with the replay they imply, block and state-slot reuse, speculative decode, preemption,
    placeholders; block 128, W = 128, ratios 1, 4 and 128, 128 K of context. Dense expansions are left out. The engine
    builds every row; the oracle checks `--rows` a sequence: first, last, those on and beside boundaries, the rest by
    seeded choice. Steps of 256 sequences and more are held against a vectorised reference in every row; what differs
    is confirmed by the oracle. Ends at the first step that differs, which is reduced to the least that shows it (20 s
    at most) and saved as a case. In this process by default: batches of such sizes take a while to travel. Ask for a
    worker with `--isolated` if the subject may crash.

    Example: `inputmeta trace conversation.jsonl --limit 200 --rows 8`
    """
    try:
        chosen = TraceOptions(
            seed=seed,
            limit=limit,
            rows=parse_rows(rows),
            drafts=drafts,
            acceptance=acceptance,
            chunk_tokens=chunk,
            max_running=running,
            total_blocks=blocks,
            decode_path="decode_zos" if zos else "decode",
            cp_size=cp,
            yoco_mode=yoco.value,
            yoco_prefill_keep_tokens=keep,
        )
        lines = count_requests(file)
        with target.open() as tested, held():
            remark(f"trace {file.name}: subject {tested.name}, seed {seed}, rows {rows}, drafts {drafts}")
            total = lines if limit is None else min(lines, limit)
            with TraceProgress(total, quiet=is_quiet()) as progress:
                result = replay_trace(read_trace(file), chosen, tested, progress, save_case=save_case)
            summary = summary_lines(result)
            remark("\n".join(summary))
            # A case holds one step, which a worker can be sent.
            run = Run(Session(tested), replace(target, in_process=False), save_dir)
            with reported(run.summary, "trace", html=html):
                run.summary.parts.append(part_of(result, file.name, seed))
                code = run.summary.code = conclude(run, result, save_case)
            conclusion(f"trace {file.name}: {summary[-1]}")
    except (TraceError, ValueError) as error:
        raise fail(str(error), exits.code_for(error)) from error
    raise typer.Exit(code)


def parse_rows(text: str) -> int | None:
    """``all`` or a positive number; ValueError otherwise."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--rows: {text}: must be a positive number or all")
    return int(text)


def conclude(run: Run, result: TraceResult, save_case: int | None) -> int:
    """Report the failures, save what is to be saved, and give the exit code."""
    tell(run, reduce_roots(run.session, list(result.failures.values()), is_known=run.is_known), examine=False)
    if save_case is not None:
        if result.saved is None:
            say(f"step {save_case} was not reached: nothing saved")
        else:
            say(f"step {save_case} saved as {store_case(result.saved, run.save_dir)}")
    for finding in result.suite:
        text = f"{finding.signature}: step {finding.step}: {finding.detail}\n  a fault of the suite: please report it"
        run.summary.failures.append(Report(finding, (), text))
        say(f"\n{text}")
    if result.suite:
        return exits.TOOL_FAILED
    if result.failures:
        return exits.DIFFERS
    return exits.CONFORMS if result.passed else exits.NOTHING_RAN
