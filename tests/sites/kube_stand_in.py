"""A stand-in for a Kubernetes API server: what the site asks of one, over HTTP, with pods that are processes here."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

Object = dict[str, Any]


class StandIn:
    """Objects by plural and name; each change has a number, and watches read on in the list of changes."""

    def __init__(self, folder: Path) -> None:
        self.changed = threading.Condition()
        self.objects: dict[str, dict[str, Object]] = {}
        self.changes: list[tuple[int, str, str, Object]] = []
        self.number = 1
        self.forgotten = 0
        self.away = False
        self.refuses: tuple[str, ...] = ()  # ends of names that nobody may create
        self.runs = True
        self.asked: list[str] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"stand_in": self}))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server.server_port}"}}],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
                    "current-context": "x",
                }
            )
        )

    def close(self) -> None:
        for process in list(self.processes.values()):
            process.kill()
            process.wait()
        self.server.shutdown()
        self.server.server_close()

    def put(self, plural: str, found: Object, kind: str = "MODIFIED") -> None:
        with self.changed:
            self.number += 1
            found = copy.deepcopy(found)
            found["metadata"]["resourceVersion"] = str(self.number)
            of_plural = self.objects.setdefault(plural, {})
            if kind == "DELETED":
                of_plural.pop(found["metadata"]["name"], None)
            else:
                of_plural[found["metadata"]["name"]] = found
            self.changes.append((self.number, plural, kind, found))
            self.changed.notify_all()

    def expire(self) -> None:
        """Forget all changes: who watches from before is told 410 Gone."""
        with self.changed:
            self.forgotten = self.number
            self.changes.clear()
            self.changed.notify_all()

    def pod(self, job: str, **status: Any) -> None:
        """Let the pod of a job say this."""
        found = copy.deepcopy(self.objects["pods"][f"{job}-pod"])
        found["status"] = status
        self.put("pods", found)

    def create(self, plural: str, body: Object) -> bool:
        name = body["metadata"]["name"]
        with self.changed:
            if name in self.objects.get(plural, {}):
                return False
            body["metadata"]["uid"] = f"uid-{self.number}"
            self.put(plural, body, "ADDED")
        if plural in ("jobs", "dijobs"):
            self._begin(plural, body)
        return True

    def delete(self, plural: str, name: str) -> bool:
        found = self.objects.get(plural, {}).get(name)
        if found is None:
            return False
        self.put(plural, found, "DELETED")
        for one, owned in list(self.objects.get("jobs", {}).items()):  # what it owns goes with it
            owners = [owner["uid"] for owner in owned["metadata"].get("ownerReferences", ())]
            if found["metadata"].get("uid") in owners:
                self.delete("jobs", one)
        pod = self.objects.get("pods", {}).get(f"{name}-pod")
        if name in self.processes:
            self.processes[name].terminate()
        if pod is not None:
            self.put("pods", pod, "DELETED")
        return True

    def _begin(self, plural: str, body: Object) -> None:
        name = body["metadata"]["name"]
        template = _template(body)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-pod", "labels": template["metadata"].get("labels", {})},
            "spec": {**template["spec"], "nodeName": "node-1"},
            "status": {"phase": "Pending"},
        }
        self.put("pods", pod, "ADDED")
        if self.runs:
            threading.Thread(target=self._run, args=(plural, name, template["spec"]), daemon=True).start()

    def _run(self, plural: str, name: str, pod: Object) -> None:
        container = pod["containers"][0]
        argv = [*container["command"], *container.get("args", ())]
        for volume in pod.get("volumes", ()):
            if "configMap" in volume:
                path = next(one["mountPath"] for one in container["volumeMounts"] if one["name"] == volume["name"])
                here = self._mounted(volume["configMap"]["name"])
                argv = [word.replace(path, str(here)) for word in argv]
        env: dict[str, str] = {}
        for one in container.get("envFrom", ()):
            env |= self.objects["secrets"][one["secretRef"]["name"]]["stringData"]
        for one in container.get("env", ()):
            env[one["name"]] = self._value(one, env)
        with (self.folder / f"{name}-pod.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(argv, env={**os.environ, **env}, stdout=log, stderr=log)
        self.pod(name, phase="Running", podIP="127.0.0.1")
        self._status(plural, name, {"active": 1, "phase": "Running"})
        self._end(plural, name)

    def _value(self, entry: Object, known: dict[str, str]) -> str:
        """Of a variable: a text with those before it, a field of the pod, or a part of a Secret."""
        if "value" in entry:
            return re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], entry["value"])
        source = entry["valueFrom"]
        if "secretKeyRef" in source:
            asked = source["secretKeyRef"]
            return str(self.objects["secrets"][asked["name"]]["stringData"][asked["key"]])
        return {"spec.nodeName": "node-1", "status.podIP": "127.0.0.1"}[source["fieldRef"]["fieldPath"]]

    def _mounted(self, name: str) -> Path:
        """The files of a ConfigMap; a pod waits for it."""
        with self.changed:
            self.changed.wait_for(lambda: name in self.objects.get("configmaps", {}), 60)
            data = self.objects["configmaps"][name]["data"]
        here = self.folder / "mounted" / name
        here.mkdir(parents=True)
        for file, text in data.items():
            (here / file).write_text(text)
        return here

    def _end(self, plural: str, name: str) -> None:
        code = self.processes[name].wait()
        if name not in self.objects.get(plural, {}):
            return
        over = {"name": "job", "state": {"terminated": {"exitCode": code}}}
        self.pod(name, phase="Failed" if code else "Succeeded", containerStatuses=[over])
        word = "Failed" if code else "Complete"
        phase = "Failed" if code else "Succeeded"
        self._status(plural, name, {"phase": phase, "conditions": [{"type": word, "status": "True"}]})

    def _status(self, plural: str, name: str, status: Object) -> None:
        found = copy.deepcopy(self.objects[plural][name])
        found["status"] = status
        self.put(plural, found)


def _template(body: Any) -> Object:
    found = body["spec"].get("template") or body["spec"]["tasks"][0]["template"]
    found.setdefault("metadata", {})
    return dict(found)


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandIn
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _asked(self) -> tuple[str, str | None, dict[str, str]]:
        url = urlparse(self.path)
        parts = url.path.split("/")
        at = parts.index("namespaces") + 2
        self.stand_in.asked.append(f"{self.command} {'/'.join(parts[at:])}")
        return (
            parts[at],
            parts[at + 1] if len(parts) > at + 1 else None,
            {k: v[0] for k, v in parse_qs(url.query).items()},
        )

    def _answer(self, code: int, body: Object | bytes, kind: str = "application/json") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _error(self, code: int, reason: str) -> None:
        self._answer(code, {"kind": "Status", "code": code, "reason": reason, "message": f"{reason} of {self.path}"})

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")

    def do_POST(self) -> None:
        plural, _, _ = self._asked()
        body = self._body()
        if self.stand_in.away:
            return self._error(503, "ServiceUnavailable")
        if body["metadata"]["name"].endswith(self.stand_in.refuses):
            return self._error(403, "Forbidden")
        made = self.stand_in.create(plural, body)
        return self._answer(201, body) if made else self._error(409, "AlreadyExists")

    def do_DELETE(self) -> None:
        plural, name, query = self._asked()
        self._body()
        if self.stand_in.away:
            return self._error(503, "ServiceUnavailable")
        if name is None:
            for one, found in list(self.stand_in.objects.get(plural, {}).items()):
                if _selected(found, query):
                    self.stand_in.delete(plural, one)
        elif not self.stand_in.delete(plural, name):
            return self._error(404, "NotFound")
        return self._answer(200, {"kind": "Status", "status": "Success"})

    def do_GET(self) -> None:
        plural, name, query = self._asked()
        if self.stand_in.away:
            return self._error(503, "ServiceUnavailable")
        if name is not None:
            log = self.stand_in.folder / f"{name}.log"
            return self._answer(200, log.read_bytes() if log.exists() else b"", "text/plain")
        if "watch" in query:
            return self._watch(plural, query)
        with self.stand_in.changed:
            items = [one for one in self.stand_in.objects.get(plural, {}).values() if _selected(one, query)]
            about = {"resourceVersion": str(self.stand_in.number)}
        return self._answer(200, {"kind": "List", "apiVersion": "v1", "metadata": about, "items": items})

    def _watch(self, plural: str, query: dict[str, str]) -> None:
        stand_in, after = self.stand_in, int(query["resourceVersion"])
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        end = time.monotonic() + float(query.get("timeoutSeconds", 60))
        try:
            while time.monotonic() < end and not stand_in.away:
                with stand_in.changed:
                    if after < stand_in.forgotten:
                        gone = {
                            "kind": "Status",
                            "code": 410,
                            "reason": "Expired",
                            "message": "too old resource version",
                        }
                        self._line({"type": "ERROR", "object": gone})
                        break
                    news = [one for one in stand_in.changes if one[0] > after]
                    if not news:
                        stand_in.changed.wait(0.1)
                for number, of, kind, found in news:
                    after = number
                    if of == plural and _selected(found, query):
                        self._line({"type": kind, "object": found})
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def _line(self, value: Object) -> None:
        data = json.dumps(value).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def _selected(found: Object, query: dict[str, str]) -> bool:
    labels = found["metadata"].get("labels") or {}
    wanted = dict(one.split("=", 1) for one in query.get("labelSelector", "").split(",") if one)
    return all(labels.get(key) == value for key, value in wanted.items())
