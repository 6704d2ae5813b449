"""/ and its files: read once at the start, served from memory."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response

_FOLDER: Final = Path(__file__).parent / "static"
_FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page/api.js": ("api.js", "text/javascript; charset=utf-8"),
    "/page/elements.js": ("elements.js", "text/javascript; charset=utf-8"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
}
# Nothing runs, loads or connects but what this server serves; no frame, no form target, no base.
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)


def page_routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    for path, (name, media_type) in _FILES.items():
        _add(router, path, (_FOLDER / name).read_bytes(), media_type)
    return router


def _add(router: APIRouter, path: str, content: bytes, media_type: str) -> None:
    tag = f'"{sha256(content).hexdigest()[:16]}"'
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Cache-Control": "no-cache", "ETag": tag}

    async def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    router.add_api_route(path, serve, methods=["GET", "HEAD"])
