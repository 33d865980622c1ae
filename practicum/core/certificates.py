"""Environment variables that name the certificates to trust.

Libraries report a path that does not exist as a bare "No such file or directory", or as a certificate that cannot be
verified.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from practicum.core.errors import UsageError

OF_HTTPX = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Read by what asks models, and by the service for its upstream."""

OF_REQUESTS = (*OF_HTTPX, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Read by what downloads files, with `requests` and pip."""


def require_certificates(variables: Sequence[str] = OF_HTTPX) -> None:
    """Raise UsageError if one of these variables names nothing that exists."""
    for variable in variables:
        value = os.environ.get(variable)
        if not value:
            continue
        paths = [Path(part) for part in value.split(os.pathsep)] if variable == "SSL_CERT_DIR" else [Path(value)]
        if not any(path.exists() for path in paths):
            raise UsageError(
                "settings.invalid",
                f"the environment variable {variable} names {value!r:.200}, which does not exist: correct it, or unset "
                "it to use the certificates of this system",
            )
