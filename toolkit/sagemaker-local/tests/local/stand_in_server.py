"""A stand-in for vLLM's server: a small real HTTP process with a child, whose faults can be chosen.

`install` writes it as a package `vllm` that the real `serve` starts; STAND_IN says how it shall behave:
"" answers pings; "crash" fails at start; "stubborn" ignores SIGTERM; "late-death" ends 1 s after the start.
"""

from pathlib import Path

SOURCE = """
import http.server, json, os, signal, subprocess, sys, threading, time

mode = os.environ.get("STAND_IN", "")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("stand-in started", json.dumps({"argv": sys.argv[1:]}), flush=True)
if mode == "crash":
    raise ValueError("the head's weights do not fit")
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "late-death":
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGSEGV)).start()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(dict(os.environ)).encode()
        self.send_response(200 if self.path in ("/ping", "/environment") else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

port = int(sys.argv[len(sys.argv) - sys.argv[::-1].index("--port")])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def install(directory: Path) -> dict[str, str]:
    """Write the package into the directory; return the environment that makes Python find it."""
    package = directory / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True, exist_ok=True)
    (package / "api_server.py").write_text(SOURCE)
    return {"PYTHONPATH": str(directory)}
