"""What Operant needs of a Kubernetes cluster: calls on plain dicts, mirrors kept by watches, states in words."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from operant.errors import ConfigError, MissingExtraError, OperantError
from operant.sites.cluster_jobs import SiteAwayError, SiteRefusedError
from operant.space import load_yaml

Object = dict[str, Any]

CALL_SECONDS = 30.0
WATCH_SECONDS = 60
_LONGEST_BACK_OFF = 15.0
# Reasons of a container that waits which time does not mend.
_HOPELESS = (
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
_PULLING = ("ErrImagePull", "ImagePullBackOff")
_NODE_LOST = ("NodeLost", "NodeShutdown", "Shutdown", "Terminated", "NodeAffinity")


class Cluster:
    """One namespace, by the official client. Who is away raises `SiteAwayError`, who refuses `SiteRefusedError`."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None) -> None:
        try:
            from kubernetes import client, config
        except ImportError:
            raise MissingExtraError("Kubernetes", "k8s") from None
        settings = client.Configuration()
        settings.retries = False  # calls are repeated here, where it is known what may be
        try:
            self.api = config.new_client_from_config(kubeconfig, context, client_configuration=settings)
            self.namespace = namespace or _namespace_of(config, kubeconfig, context)
        except config.ConfigException as error:
            try:
                config.load_incluster_config(client_configuration=settings)
            except config.ConfigException:
                told = str(error).removeprefix("Invalid kube-config file. ").rstrip(".")
                raise ConfigError(f"there is no way to a cluster: {told}", ("kubeconfig",)) from None
            self.api = client.ApiClient(settings)
            inside = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
            self.namespace = namespace or inside.read_text(encoding="utf-8").strip()
        self._custom = client.CustomObjectsApi(self.api)
        self._core = client.CoreV1Api(self.api)

    def create(self, manifest: Object) -> Object:
        """Create an object; one of that name that is there already is the one, and given back."""
        try:
            return self.request("POST", self._path(manifest), manifest)
        except AlreadyThere:
            return manifest

    def delete(self, kind: Object, name: str) -> None:
        """Delete an object with all that it owns; one that is gone is no error."""
        with contextlib.suppress(NotThere):
            self.request("DELETE", self._path(kind, name), propagationPolicy="Background")

    def delete_all(self, kind: Object, selector: str) -> None:
        """Delete all objects with these labels, by one call."""
        self.request("DELETE", self._path(kind), labelSelector=selector, propagationPolicy="Background")

    def log(self, pod: str, lines: int = 5) -> str:
        """The last lines that a pod printed; nothing where there is none."""
        try:
            said = self._call(self._core.read_namespaced_pod_log, pod, self.namespace, tail_lines=lines)
        except (SiteAwayError, SiteRefusedError, NotThere):
            return ""
        return str(said or "")

    def follow_log(self, pod: str) -> Iterator[bytes]:
        """What a pod prints, from its first line on and as it comes."""
        from urllib3.exceptions import HTTPError

        read = self._core.read_namespaced_pod_log
        answer = self._call(read, pod, self.namespace, follow=True, _preload_content=False)
        try:
            yield from answer.stream()
        except (HTTPError, OSError) as error:
            raise SiteAwayError(f"the log is cut off: {_short(error)}") from None

    def get(self, kind: Object, name: str) -> Object | None:
        """An object as it is now; None where there is none."""
        try:
            return self.request("GET", self._path(kind, name))
        except NotThere:
            return None

    def find(self, kind: Object, selector: str = "", *, everywhere: bool = False) -> list[Object]:
        """The objects of a kind with these labels, in this namespace or ``everywhere``; none of a kind unknown here."""
        try:
            found = self.request("GET", self._path(kind, everywhere=everywhere), labelSelector=selector)
        except NotThere:
            return []
        return [{"apiVersion": kind["apiVersion"], "kind": kind["kind"], **one} for one in found["items"]]

    def put(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Create an object, or replace the version of it that ``metadata.resourceVersion`` names; as it is then."""
        about = manifest["metadata"]
        query = {"dryRun": "All"} if dry_run else {}
        if "resourceVersion" not in about:
            return self.request("POST", self._path(manifest), manifest, **query)
        return self.request("PUT", self._path(manifest, about["name"]), manifest, **query)

    def request(self, method: str, path: str, body: Object | None = None, **query: str) -> Object:
        """One call by a path of the API server's; the client has no call for what every kind of object has."""
        from urllib.parse import urlencode

        settings = self.api.configuration
        found = f"?{urlencode(query)}" if any(query.values()) else ""
        headers = {**self.authorization(), "Accept": "application/json", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()

        def call(_request_timeout: tuple[float, float], **_: Any) -> Any:
            from urllib3 import Timeout

            wait = Timeout(connect=_request_timeout[0], read=_request_timeout[1])
            pool = self.api.rest_client.pool_manager
            url = f"{settings.host}{path}{found}"
            return pool.request(method, url, body=data, headers=headers, timeout=wait, retries=False)

        return self._json(call)

    def authorization(self) -> dict[str, str]:
        """The headers by which this user is known; a token that runs out is renewed as the kubeconfig says."""
        settings = self.api.configuration.auth_settings().values()
        return {one["key"]: one["value"] for one in settings if one["in"] == "header" and one["value"]}

    def _path(self, kind: Object, name: str | None = None, *, everywhere: bool = False) -> str:
        group, version, namespace, plural = self._place(kind)
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        scope = "" if everywhere else f"/namespaces/{namespace}"
        return f"{base}{scope}/{plural}" + (f"/{name}" if name else "")

    def mirror(self, kind: Object | None, selector: str) -> Mirror:
        """The objects of a kind (None: pods) with these labels, kept up to date."""
        if kind is None:
            return Mirror(self, self._core.list_namespaced_pod, (self.namespace,), selector)
        return Mirror(self, self._custom.list_namespaced_custom_object, self._place(kind), selector)

    def _place(self, manifest: Object) -> tuple[str, str, str, str]:
        group, _, version = str(manifest["apiVersion"]).rpartition("/")
        word = str(manifest["kind"]).lower()
        return group, version, self.namespace, f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"

    def _call(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return call(*args, _request_timeout=(5.0, CALL_SECONDS), **options)
        except (HTTPError, OSError) as error:
            raise SiteAwayError(f"the API server does not answer: {_short(error)}") from None
        except ApiException as error:
            raise _refusal(error.status, error.reason, error.body) from None

    def _json(self, call: Callable[..., Any], *args: Any, **options: Any) -> Object:
        """The answer as it is; the client's models would refuse what a newer or older server says."""
        answer = self._call(call, *args, _preload_content=False, **options)
        if not 200 <= answer.status <= 299:
            raise _refusal(answer.status, answer.reason, answer.data)
        try:
            found: Object = json.loads(answer.data)
        except ValueError:
            raise SiteAwayError("the API server's answer was cut off") from None
        return found


def _refusal(status: int | None, reason: Any, body: Any) -> OperantError:
    said = f"{reason}: {_message(body)}".rstrip(": ")
    if status == 409 and "AlreadyExists" in str(body):
        return AlreadyThere(said)
    if status == 404:
        return NotThere(f"the cluster has none: {said}")
    if status == 410:
        return _Expired(said)
    # A quota that is used up is a 403 that waiting mends.
    if not status or status in (408, 409, 429) or status >= 500 or "exceeded quota" in said:
        return SiteAwayError(said)
    return SiteRefusedError(f"the cluster refuses: {said}")


class AlreadyThere(SiteRefusedError):
    """There is one of that name."""


class NotThere(SiteRefusedError):
    """There is none of that name, or no such kind."""


class _Expired(SiteRefusedError):
    """A watch that is too old to be gone on with: 410."""


class Mirror:
    """The objects of one kind by name, as the API server tells them: one list, then a watch from there.

    A watch that ends is begun again where it was; where that is too old (410 Gone), all are listed anew.
    """

    def __init__(self, cluster: Cluster, call: Callable[..., Any], args: tuple[Any, ...], selector: str) -> None:
        self._cluster, self._list, self._args, self._selector = cluster, call, args, selector
        self._lock = threading.Lock()
        self._objects: dict[str, Object] = {}
        self._version: str | None = None
        self._away: str | None = None
        self._watch: Any = None
        self._changed: Callable[[], object] = lambda: None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, changed: Callable[[], object]) -> None:
        """Keep up from now on; ``changed`` is called after each change."""
        self._changed = changed
        self._thread = threading.Thread(target=self._follow, name="operant-watch", daemon=True)
        self._thread.start()

    def objects(self) -> dict[str, Object]:
        """All of them; asked for now where nothing keeps them up to date."""
        if self._version is None or self._away is not None or self._thread is None:
            self._refresh()
        with self._lock:
            return dict(self._objects)

    def put(self, found: Object) -> None:
        """One that was just made: the watch may tell of it a little later."""
        with self._lock:
            self._objects.setdefault(found["metadata"]["name"], found)

    def close(self) -> None:
        self._closed.set()
        if self._watch is not None:
            self._watch.stop()

    def _refresh(self) -> None:
        listed = self._cluster._json(self._list, *self._args, label_selector=self._selector)
        with self._lock:
            self._objects = {one["metadata"]["name"]: one for one in listed["items"]}
            self._version = listed["metadata"]["resourceVersion"]
            self._away = None

    def _follow(self) -> None:
        back_off = 0.0
        while not self._closed.is_set():
            try:
                if self._version is None or self._away is not None:
                    self._refresh()
                    self._changed()
                back_off = 0.0
                self._hear()
            except _Expired:
                self._version = None
            except (SiteAwayError, SiteRefusedError) as error:
                self._away = str(error)
                back_off = min(_LONGEST_BACK_OFF, max(0.5, back_off * 2))
                self._closed.wait(back_off)

    def _hear(self) -> None:
        """Take changes until the watch ends by itself."""
        from kubernetes import watch

        self._watch = watch.Watch()
        events = self._watch.stream(
            self._list,
            *self._args,
            label_selector=self._selector,
            resource_version=self._version,
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=(5.0, WATCH_SECONDS + CALL_SECONDS),
            deserialize=False,
        )
        while not self._closed.is_set():
            try:
                event = self._cluster._call(lambda **_: next(events, None))
            except (KeyError, ValueError) as error:  # a line that is an error, such as 410, or is cut off
                raise _Expired(str(error)) from None
            if event is None:
                return
            found = event["object"]
            name = found["metadata"]["name"]
            with self._lock:
                if event["type"] == "DELETED":
                    self._objects.pop(name, None)
                elif event["type"] in ("ADDED", "MODIFIED"):
                    self._objects[name] = found
                self._version = found["metadata"]["resourceVersion"]
            self._changed()


def _namespace_of(config: Any, kubeconfig: str | None, context: str | None) -> str:
    contexts, active = config.list_kube_config_contexts(kubeconfig)
    chosen = next((one for one in contexts if one["name"] == context), active)
    return str(chosen["context"].get("namespace") or "default")


def _message(body: Any) -> str:
    try:
        return str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        return ""


def _short(error: BaseException) -> str:
    text = str(getattr(error, "reason", None) or error)
    return text.rpartition(">: ")[2][:200] or type(error).__name__


def read_documents(path: str | Path) -> list[Object]:
    """The objects of a manifest file; what else stands in it, such as anchors for the rest, comes first."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", file=str(file)) from None
    found = (load_yaml(part, str(file))[0] for part in re.split(r"^---.*$", text, flags=re.MULTILINE))
    return [one for one in found if isinstance(one, dict) and one.get("kind") and one.get("apiVersion")]


# -- states in words ---------------------------------------------------------------------------------------------------


def state_of(found: Object) -> tuple[str, str]:
    """What a `Job`, `RayJob` or `DIJob` says of itself: (``waiting``, ``running``, ``good`` or ``bad``; in words)."""
    status: Mapping[str, Any] = found.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed", "Succeeded"):
            words = ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
            return ("bad" if condition["type"] == "Failed" else "good"), words or str(condition["type"])
    phase = str(status.get("jobStatus") or status.get("phase") or "")
    deployed = str(status.get("jobDeploymentStatus") or "")
    words = ": ".join(filter(None, (phase or deployed, status.get("message"))))
    if phase.lower() in ("succeeded", "complete", "completed"):
        return "good", words
    if phase.lower() in ("failed", "stopped", "error", "unknown") or deployed == "Failed":
        return "bad", words
    running = bool(status.get("active")) if "kind" in found and found["kind"] == "Job" else phase.lower() == "running"
    return ("running" if running else "waiting"), words


def pod_state(pod: Object) -> tuple[str, str, str | None]:
    """What a pod says: (``waiting``, ``running`` or ``ended``; in words; a reason that is not the program's)."""
    status: Mapping[str, Any] = pod.get("status") or {}
    phase = status.get("phase", "Pending")
    if "deletionTimestamp" in pod["metadata"] and status.get("reason") == "NodeLost":
        return "ended", "its node is lost", "node_failed"
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = container.get("state") or {}
        over = state.get("terminated")
        if over and over.get("reason") == "OOMKilled":
            return "ended", f"{container['name']} was killed because its memory passed the pod's limit", "memory_limit"
        if over and over.get("exitCode"):
            said = over.get("message") or over.get("reason") or ""
            return _ended(status, f"{container['name']} ended with exit code {over['exitCode']} {said}".strip())
        waits = state.get("waiting") or {}
        why = f"{waits.get('reason')}: {waits.get('message', '')}".rstrip(": ")
        if waits.get("reason") in _HOPELESS:
            return "ended", f"{container['name']} cannot start, {why}", "cannot_start"
        if waits.get("reason") in _PULLING:
            words = f"the image {container.get('image')} cannot be pulled, {why}"
            return "waiting", words, "cannot_pull"
    if phase in ("Failed", "Succeeded"):
        return _ended(status, str(status.get("message") or phase))
    if phase == "Running":
        return "running", "", None
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return "waiting", f"no node takes it: {condition.get('message') or condition.get('reason')}", None
    return "waiting", "", None


def _ended(status: Mapping[str, Any], words: str) -> tuple[str, str, str | None]:
    reason, said = str(status.get("reason") or ""), str(status.get("message") or "")
    if reason == "DeadlineExceeded":
        return "ended", f"it passed its deadline: {said}", "time_limit"
    if reason == "Evicted":
        return "ended", f"the node evicted it: {said}", "preempted"
    if reason.startswith("Preempt"):
        return "ended", f"it was preempted: {said}", "preempted"
    if reason in _NODE_LOST:
        return "ended", f"its node went away: {said or reason}", "node_failed"
    return "ended", words, None
