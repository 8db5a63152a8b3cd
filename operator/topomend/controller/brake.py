"""The storm brake's list: owners whose new pods the API server gates at birth, in a ConfigMap that its policy reads.

A controller whose pod is refused makes the next one at once, to be refused as well. From its first refused pod on, its
owner is on the list, and the policy puts our gate on its new pods; they are let go one by one to where replay says they
fit. An owner leaves the list when none of its pods waits behind the gate and none was refused for a while.
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping

from topomend.kube.client import CONFIG_MAPS, Client
from topomend.kube.errors import APIError, Forbidden, NotFound
from topomend.model.cluster import WatchedPod

CONFIG_MAP = "topomend-brake"
QUIET_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Brake:
    """Keeps the list. May be used by several threads."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._refused_at: dict[str, float] | None = None
        self._lock = threading.Lock()

    def press(self, pod: WatchedPod) -> None:
        """Have the owner's new pods gated. Without the right to, or the namespace, pods are relaunched all the same."""
        if pod.owner is None:
            return
        uid = pod.owner.uid
        with self._lock:
            listed = self._listed()
            if uid not in listed:
                name = f"{pod.namespace}/{pod.owner.kind}/{pod.owner.name}"
                if not self._write({uid: name}):
                    return
                _log.info("new pods of %s are gated until they fit", name)
            listed[uid] = time.monotonic()

    def forget(self) -> None:
        """Read the list anew: another operator may have changed it."""
        with self._lock:
            self._refused_at = None

    def ease(self, still_gated: Iterable[str]) -> None:
        """Take the owners off whose pods are admitted again; ``still_gated`` are uids of those with gated pods."""
        gated = set(still_gated)
        with self._lock:
            listed = self._listed()
            quiet = time.monotonic() - QUIET_SECONDS
            admitted = [uid for uid, refused_at in listed.items() if uid not in gated and refused_at < quiet]
            if admitted and self._write(dict.fromkeys(admitted)):
                for uid in admitted:
                    del listed[uid]

    def _listed(self) -> dict[str, float]:
        """The list, read once from a life before this one: whoever is on it is as if just refused."""
        if self._refused_at is None:
            data: dict[str, str] = {}
            try:
                data = self._client.get(CONFIG_MAPS, CONFIG_MAP, self._namespace).get("data") or {}
            except NotFound:
                self._create({})  # the API server is quicker to see a change than a new object
            except Forbidden as error:
                _log.warning("the storm brake is off: %s", error)
            self._refused_at = dict.fromkeys(data, time.monotonic())
        return self._refused_at

    def _write(self, data: Mapping[str, str | None]) -> bool:
        try:
            self._client.merge(CONFIG_MAPS, CONFIG_MAP, {"data": data}, self._namespace)
        except NotFound:
            return self._create(data)
        except Forbidden as error:
            _log.warning("the storm brake is off: %s", error)
            return False
        return True

    def _create(self, data: Mapping[str, str | None]) -> bool:
        content = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "namespace": self._namespace},
            "data": {key: value for key, value in data.items() if value is not None},
        }
        try:
            self._client.create(CONFIG_MAPS, content, self._namespace)
        except APIError as error:
            _log.warning("the storm brake is off: ConfigMap %s/%s: %s", self._namespace, CONFIG_MAP, error)
            return False
        return True
