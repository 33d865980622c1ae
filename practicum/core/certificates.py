"""Checks of the environment variables that name the certificates to trust.

If such a variable names a path that does not exist, libraries only report "No such file or directory", or that a
certificate cannot be verified, without the name of the variable.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from practicum.core.errors import UsageError

OF_HTTPX = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that the model clients and the service's upstream client read."""

OF_REQUESTS = (*OF_HTTPX, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that `requests` and pip read when they download files."""


def require_certificates(variables: Sequence[str] = OF_HTTPX) -> None:
    """Raise UsageError if one of these variables is set, and none of the paths in its value exists."""
    for variable in variables:
        value = os.environ.get(variable)
        if not value:
            continue
        paths = [Path(part) for part in value.split(os.pathsep)] if variable == "SSL_CERT_DIR" else [Path(value)]
        if not any(path.exists() for path in paths):
            raise UsageError(
                "settings.invalid",
                f"the environment variable {variable} names {value!r:.200}, which does not exist: correct the "
                "variable, or unset it to use the certificates of this system",
            )
