"""Which target of `[http] allow` the page on show belongs to: only its own pages may reach it.

Does not own: other targets, which the guard judges alone.
Otherwise any public page could post to what the operator opened, and send home what it read there. A site is entered
by opening one of its addresses, and left as soon as the page asks for a document elsewhere.
"""

from palyra.adapters.net.guard import Guard
from palyra.core.errors import PalyraError
from palyra.core.hosts import HostPort, UrlTarget, judge_url


class OwnSite:
    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._endpoint: HostPort | None = None

    def enter(self, url: str) -> None:
        """Notes what is about to be opened on behalf of the agent."""
        try:
            endpoint = self._guard.judge(url).endpoint
        except PalyraError:
            endpoint = None
        self._endpoint = endpoint if endpoint is not None and self._guard.is_opened(endpoint) else None

    def follow(self, url: str) -> None:
        """Notes that the page asks for another document; elsewhere it is no longer the site's own."""
        if self._endpoint is None:
            return
        target = judge_url(url, frozenset({self._endpoint}))
        if not isinstance(target, UrlTarget) or target.endpoint != self._endpoint:
            self._endpoint = None

    def is_own(self, endpoint: HostPort) -> bool:
        return endpoint == self._endpoint
