"""Stands in for `unstraggle serve`: a V2 server that calls every digit a zero. Standard library only.

Ignores its `--set` options. Its first argument chooses how it behaves:
    good       serves until SIGTERM
    dies       complains and exits with status 1
    silent     never says where it serves
    unready    serves, but is never ready
    stubborn   as good, but ignores SIGTERM
    flaky      as good, but answers every third request with status 503
"""

import json
import signal
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CLASSES = 10
METADATA = {
    "name": "lenet5",
    "platform": "stand-in",
    "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 28, 28]}],
    "outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, CLASSES]}],
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    behaviour = "good"
    calls = 0
    lock = threading.Lock()

    def do_GET(self):
        if self.path == "/v2/health/ready":
            self.answer(503 if self.behaviour == "unready" else 200, b"{}")
        elif self.path == "/v2/models/lenet5":
            self.answer(200, json.dumps(METADATA).encode())
        elif self.path == "/metrics":
            self.answer(200, metrics(Handler.calls).encode())
        else:
            self.answer(404, b'{"error": "no such route"}')

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = json.loads(body[: int(self.headers["Inference-Header-Content-Length"])])
        with self.lock:
            Handler.calls += 1
            number = Handler.calls
        if self.behaviour == "flaky" and number % 3 == 0:
            self.answer(503, b'{"error": "too few replicas"}')
        else:
            self.answer_zeros(request["inputs"][0]["shape"][0])

    def answer_zeros(self, rows):
        raw = struct.pack(f"<{CLASSES}f", 1.0, *([0.0] * (CLASSES - 1))) * rows
        output = {
            "name": "scores",
            "datatype": "FP32",
            "shape": [rows, CLASSES],
            "parameters": {"binary_data_size": len(raw)},
        }
        parameters = {"obtained": "direct", "replicas_used": 1, "degraded": False, "error_estimate": 0.0}
        reply = json.dumps({"model_name": "lenet5", "parameters": parameters, "outputs": [output]}).encode()
        self.answer(200, reply + raw, {"Inference-Header-Content-Length": str(len(reply))})

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def metrics(calls):
    return (
        "# TYPE unstraggle_replica_calls counter\n"
        f'unstraggle_replica_calls_total{{replica="0",outcome="answered"}} {2 * calls}\n'
        "# TYPE unstraggle_replica_call_seconds histogram\n"
        f'unstraggle_replica_call_seconds_bucket{{replica="0",outcome="answered",le="+Inf"}} {2 * calls}\n'
        f'unstraggle_replica_call_seconds_count{{replica="0",outcome="answered"}} {2 * calls}\n'
        f'unstraggle_replica_call_seconds_sum{{replica="0",outcome="answered"}} {0.5 * calls}\n'
    )


def main(behaviour):
    if behaviour == "dies":
        sys.exit("stand-in: there is no model here")
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "silent":
        time.sleep(60)
    Handler.behaviour = behaviour
    ThreadingHTTPServer.daemon_threads = True
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"unstraggle: serving lenet5 at http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
