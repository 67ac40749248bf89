"""How a reply says how it was obtained: in V2 as response parameters, in V1 as headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final
from urllib.parse import quote

from serving.types import Parameter, Provenance

_HEADERS: Final = {
    "obtained": "Unstraggle-Obtained",
    "replicas_used": "Unstraggle-Replicas-Used",
    "replicas_missing": "Unstraggle-Replicas-Missing",
    "replicas_wrong": "Unstraggle-Replicas-Wrong",
    "degraded": "Unstraggle-Degraded",
    "error_estimate": "Unstraggle-Error-Estimate",
}
_URL_CHARACTERS: Final = " ,:/?#[]@!$&'()*+;=%"


def provenance_parameters(rows: Sequence[Provenance]) -> dict[str, Parameter]:
    """The response parameters for a reply made of these rows; empty for no rows.

    Returns:
        obtained: the ways its rows were obtained, comma-joined and sorted.
        replicas_used: the smallest number of replicas behind any row.
        replicas_missing: names of replicas that had not answered, comma-joined and sorted; absent where none.
        replicas_wrong: names of replicas whose answers were found wrong and left out, likewise.
        degraded: whether any row is; `degraded_rows` counts them and is absent where none.
        error_estimate: the largest over the rows, to 6 significant digits; absent where one is not finite.
    """
    if not rows:
        return {}
    parameters: dict[str, Parameter] = {
        "obtained": ",".join(sorted({row.obtained for row in rows})),
        "replicas_used": min(row.replicas_used for row in rows),
    }
    missing = sorted({name for row in rows for name in row.missing})
    if missing:
        parameters["replicas_missing"] = ",".join(missing)
    wrong = sorted({name for row in rows for name in row.wrong})
    if wrong:
        parameters["replicas_wrong"] = ",".join(wrong)
    degraded_rows = sum(row.degraded for row in rows)
    parameters["degraded"] = degraded_rows > 0
    if degraded_rows:
        parameters["degraded_rows"] = degraded_rows
    estimates = [row.error_estimate for row in rows]
    if all(map(isfinite, estimates)):
        parameters["error_estimate"] = float(f"{max(estimates):.6g}")
    return parameters


def provenance_headers(parameters: Mapping[str, Parameter]) -> dict[str, str]:
    """The same facts as HTTP headers; parameters of other names are left out."""
    return {header: _header_value(parameters[key]) for key, header in _HEADERS.items() if key in parameters}


def _header_value(value: Parameter) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # A replica's name may hold what a header must not: line breaks, or letters outside ASCII.
    return quote(str(value), safe=_URL_CHARACTERS)
