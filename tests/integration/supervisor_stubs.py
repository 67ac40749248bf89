"""Stand-ins for a worker, free of torch: what each does is written in its `source`."""

import os
import signal
import socket
import sys
import time


def preload(source):
    pass


def run_worker(settings, link):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    return globals()[settings.source](settings, link)


def serves(settings, link):
    with listening(link):
        time.sleep(600)


def is_deaf(settings, link):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    serves(settings, link)


def dies_young(settings, link):
    with listening(link):
        return 7


def cannot_load(settings, link):
    link.load_failed(f"{settings.source} has no weights")
    return 3


def crashes(settings, link):
    os.kill(os.getpid(), signal.SIGSEGV)


def raises(settings, link):
    raise RuntimeError("told to")


def never_loads(settings, link):
    time.sleep(600)


def listening(link):
    listener = socket.create_server(("127.0.0.1", 0))
    link.listening(listener.getsockname()[1])
    return listener
