"""What the contracts see of the threads, processes and descriptors that code holds."""

import os
import subprocess
import sys
import threading

from shardproof.testing.contracts._child import left_behind, traces


def test_threads_that_end_while_they_are_looked_at():
    stop = threading.Event()

    def come_and_go():
        while not stop.is_set():
            threads = [threading.Thread(target=int) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    restless = threading.Thread(target=come_and_go)
    restless.start()
    try:
        for _ in range(500):
            traces()
    finally:
        stop.set()
        restless.join()


def test_what_is_left():
    before = traces()
    reading, writing = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="left")
    thread.start()
    try:
        found = "\n".join(left_behind(before))
    finally:
        release.set()
        thread.join()
        process.communicate(b"\n")
        os.close(reading)
        os.close(writing)
    assert "thread 'left'" in found
    assert f"process {process.pid}" in found
    assert f"descriptor {reading} of pipe:" in found
    assert left_behind(before) == []
