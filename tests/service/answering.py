"""A small HTTP server of our own, for as long as a test needs one."""
import contextlib
import http.server
import threading


@contextlib.contextmanager
def answering(answers):
    """Somebody who answers a path with (status, type, body); a body may be pieces without end."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, kind, body = answers(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            with contextlib.suppress(OSError):
                for piece in [body] if isinstance(body, bytes) else body:
                    self.wfile.write(piece)

        do_POST = do_PATCH = do_DELETE = do_GET

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
