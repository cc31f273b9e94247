"""What several reports of the harness say alike."""

from __future__ import annotations

import shlex

from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.outcome import Outcome


def headline(outcome: Outcome) -> str:
    """The outcome in one line."""
    new, again = len(outcome.findings), len(outcome.struck_again)
    told = f"{new} finding{'s' * (new != 1)}" if new else "nothing new"
    if again:
        told += f", {again} of {len(outcome.regressions)} old ones struck again"
    reached = len(outcome.reachable) - len(outcome.missing)
    told += f"; {outcome.cases} cases in {outcome.seconds:.0f} s"
    told += f", {reached} of {len(outcome.reachable)} rows reached"
    return told + (" (interrupted)" if outcome.interrupted else "")


def file_of(finding: Finding) -> str:
    """Where a finding lies, from the folder of the reports."""
    return f"findings/{finding.id}.json"


def replay(finding: Finding) -> str:
    """The command that plays a finding once more, to be run in the folder of the reports."""
    command = f"joinproto fuzz replay {file_of(finding)}"
    if finding.sequence.admission != "open":
        command += " --salt-file FILE"
    if finding.sequence.role == "agent":
        return f"{command} -- {finding.target}"
    if " " in finding.target:
        return f"{command} --start {shlex.quote(finding.target)}"
    return f"{command} --address {finding.target}"
