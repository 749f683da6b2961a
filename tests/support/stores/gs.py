"""A gs:// for tests: moto's S3, which asks for no credentials here.

obstore speaks to Google by its XML API, whose calls for putting, reading, listing and deleting objects are those of S3.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.stores.s3 import named

SIGNED = "AWS4-HMAC-SHA256 Credential=AKIATESTKEY/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


class _Signed:
    """moto knows the service and the owner by the signature of a request; these have only an empty bearer."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ["HTTP_AUTHORIZATION"] = SIGNED
        found: Iterable[bytes] = self._app(environ, start_response)
        return found


@contextmanager
def gs(bucket: str, directory: Path) -> Iterator[str]:
    """The bucket exists, and the environment of this process names the server. Gives the address of the bucket."""
    import urllib.request

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    app = _Signed(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    account = {
        "gcs_base_url": endpoint, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": "",
    }  # fmt: skip
    key = directory / "account.json"
    key.write_text(json.dumps(account))
    try:
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")).close()
        with named({"GOOGLE_SERVICE_ACCOUNT": str(key), "GOOGLE_ALLOW_HTTP": "true"}):
            yield f"gs://{bucket}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
