"""Runs a program that asks, line by line on its stdout, for what is to be killed: `ssh` or `server`; and kills it.

Processes of others tell nobody when they come and go, so /proc is asked again and again.
"""

import os
import signal
import subprocess
import sys
import time


def running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def find(is_meant):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as words:
                if is_meant(words.read().split(b"\0")) and running(name):
                    found.append(int(name))
        except OSError:
            pass
    return found


def kill(is_meant):
    while not (found := find(is_meant)):
        time.sleep(0.005)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    while any(map(running, found)):
        time.sleep(0.005)


VICTIMS = {
    "ssh": lambda words: words[0] == b"ssh" and b"-T" in words,
    "server": lambda words: b"serve" in words and any(word.startswith(b"unix:///root/.local/") for word in words),
}

program = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
killed = []
for line in program.stdout:
    victim = line.strip()
    if victim in VICTIMS:
        kill(VICTIMS[victim])
        killed.append(victim)
        program.stdin.write("done\n")
        program.stdin.flush()
assert program.wait() == 0, program.returncode
assert set(killed) == set(VICTIMS), killed
print("killed", *killed)
