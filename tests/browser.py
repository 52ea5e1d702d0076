"""A headless Chromium, told what to do through pipes: its DevTools protocol, JSON between zero bytes."""

import base64
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
from typing import Any

NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'chrome')


def find() -> str | None:
    """Returns the path of a browser, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """A page of a browser of its own, which ends with it.

    Args:
        binary: The path of the browser.
        profile: An empty directory for what it keeps.
        url: What it opens.
    """

    def __init__(self, binary: str, profile: pathlib.Path, url: str):
        its_input, self._to = os.pipe()
        self._from, its_output = os.pipe()
        options = ('headless', 'no-sandbox', 'disable-gpu', 'disable-dev-shm-usage', 'no-first-run', 'no-proxy-server')
        command = [binary, *(f'--{option}' for option in options), '--window-size=1600,1400']
        command += [f'--user-data-dir={profile}', '--remote-debugging-pipe', 'about:blank']
        self._process = subprocess.Popen(
            # The browser reads from 3 and writes to 4.
            ['bash', '-c', f'exec "$@" 3<&{its_input} 4>&{its_output}', 'bash', *command],
            pass_fds=(its_input, its_output),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_input)
        os.close(its_output)
        self._numbers = itertools.count(1)
        self._received = b''
        self._session: str | None = None
        target = self._call('Target.createTarget', url=url)['targetId']
        self._session = self._call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']

    def evaluate(self, script: str) -> Any:
        """Returns the value of a JavaScript expression in the page."""
        return self._call('Runtime.evaluate', expression=script, returnByValue=True)['result'].get('value')

    def wait_for(self, script: str, expected: Any, secs: float = 60.0) -> Any:
        """Waits until an expression has a value, and returns its last one, whatever that is."""
        end = time.monotonic() + secs
        while (value := self.evaluate(script)) != expected and time.monotonic() < end:
            time.sleep(0.2)
        return value

    def screenshot(self, path: pathlib.Path) -> None:
        """Writes a picture of the page."""
        path.write_bytes(base64.b64decode(self._call('Page.captureScreenshot')['data']))

    def close(self) -> None:
        """Ends the browser and its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {'id': number, 'method': method, 'params': params}
        if self._session is not None:
            message['sessionId'] = self._session
        os.write(self._to, json.dumps(message).encode() + b'\0')
        while True:
            answer = self._receive()
            if answer.get('id') == number:  # others are events
                return answer['result']

    def _receive(self) -> dict[str, Any]:
        while b'\0' not in self._received:
            part = os.read(self._from, 2**16)
            assert part, 'the browser has ended'
            self._received += part
        message, self._received = self._received.split(b'\0', 1)
        return json.loads(message)
