"""One running Chromium: its switches, its guarded network access, its profile and its end.

Does not own: its pages (tab).
Chromium has no network of its own. Every connection goes to a guarded proxy whose credential only Chromium has.
Chromium resolves no names, and what cannot go through a proxy (QUIC, WebRTC over UDP) is switched off. Its environment
holds nothing of the daemon's. It ends when the pipe to its driver closes, so a killed daemon leaves none behind.
"""

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import structlog
from playwright.async_api import BrowserContext, Playwright, ProxySettings
from playwright.async_api import Error as PlaywrightError

from palyra.adapters.browser.own_site import OwnSite
from palyra.adapters.net.guard import Guard
from palyra.adapters.net.proxy import GuardedProxy, ProxyDoor
from palyra.core.errors import Unavailable

log = structlog.get_logger()

START_S = 30.0
CLOSE_S = 5.0
LEAVING_S = 5.0  # How long an earlier Chromium may take to leave the profile before it is killed.
_LOOKS_COUNT = 50
WIDTH_PX, HEIGHT_PX = 1280, 800
_PROFILE_MODE = 0o700
_LOCKS = ("SingletonLock", "SingletonSocket", "SingletonCookie")
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "FONTCONFIG_PATH", "XDG_RUNTIME_DIR")

# The last list of a command line counts, so playwright's own list, which makes pages steady, is repeated here.
_FEATURES_OFF = (
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,"
    "LensOverlay,MediaRouter,PaintHolding,OptimizationHints,NetworkTimeServiceQuerying,AimEnabled,PreconnectToSearch,"
    "AutofillServerCommunication,Translate,InterestFeedContentSuggestions,CertificateTransparencyComponentUpdater"
)
_NOWHERE = "https://0.0.0.0/"  # The guard refuses it, so any call of Chromium's own that is left gets no further.

SWITCHES = (
    f"--disable-features={_FEATURES_OFF}",
    "--allow-browser-signin=false",
    f"--gaia-url={_NOWHERE}",
    f"--google-apis-url={_NOWHERE}",
    f"--gcm-checkin-url={_NOWHERE}",
    f"--gcm-registration-url={_NOWHERE}",
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-domain-reliability",
    "--no-pings",
    "--no-first-run",
    "--no-default-browser-check",
    "--deny-permission-prompts",
    "--disable-extensions",
    "--dns-prefetch-disable",
    "--renderer-process-limit=4",
    "--js-flags=--max-old-space-size=512",
)
# Playwright's switches that make a browser easier to test, and give a hostile page more freedom.
UNWANTED = ["--disable-popup-blocking", "--disable-ipc-flooding-protection"]
# Chromium reads these when a profile is new; the switches above apply to one start.
PREFERENCES = {
    "webrtc": {
        "ip_handling_policy": "disable_non_proxied_udp",
        "multiple_routes_enabled": False,
        "nonproxied_udp_enabled": False,
    },
    "autofill": {"enabled": False, "profile_enabled": False, "credit_card_enabled": False},
    "signin": {"allowed": False, "allowed_on_next_startup": False},
    "download_restrictions": 3,
    "net": {"network_prediction_options": 2},
    "safebrowsing": {"enabled": False},
    "search": {"suggest_enabled": False},
    "alternate_error_pages": {"enabled": False},
    "credentials_enable_service": False,
    "translate": {"enabled": False},
}


class Chromium:
    """A Chromium started with `launch`, with one profile, one window and one proxy."""

    def __init__(self, profile: Path, context: BrowserContext, proxy: GuardedProxy, own_site: OwnSite) -> None:
        self.own_site = own_site
        self._profile = profile
        self._proxy = proxy
        self.context = context
        self.is_alive = True
        context.on("close", self._note_end)

    @classmethod
    async def launch(cls, driver: Playwright, guard: Guard, profile: Path, executable: str) -> "Chromium":
        """Starts a Chromium. Raises Unavailable `browser_failed`, `profile_busy`, `proxy_unavailable`."""
        await _wait_until_free(profile)
        _prepare(profile)
        own_site = OwnSite(guard)
        proxy = GuardedProxy(guard, is_own=own_site.is_own)
        async with AsyncExitStack() as unless_started:
            unless_started.push_async_callback(proxy.close)
            endpoint = await proxy.start_on_port()
            unless_started.callback(kill_browsers, profile)
            context = await _launch_context(driver, profile, executable, endpoint)
            unless_started.pop_all()
        return cls(profile, context, proxy, own_site)

    async def is_answering(self) -> bool:
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.context.cookies("http://localhost/")
        except (PlaywrightError, TimeoutError):
            return False
        return True

    async def close(self) -> None:
        """Ends Chromium: the profile is written, and the processes are gone."""
        self.is_alive = False
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.context.close()
        except (PlaywrightError, TimeoutError):
            log.warning("browser_killed", profile=self._profile.name)
        finally:
            kill_browsers(self._profile)
            await self._proxy.close()

    def _note_end(self, _: BrowserContext) -> None:
        self.is_alive = False


def kill_browsers(profile: Path) -> int:
    """Kills whatever still runs on this profile, and returns how many processes that were."""
    pids = browser_pids(profile)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            log.debug("browser_gone", pid=pid)
    return len(pids)


def browser_pids(profile: Path) -> list[int]:
    """Returns the processes that were started with exactly this profile; none where there is no /proc."""
    wanted = f"--user-data-dir={profile}".encode()
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in words and int(entry.parent.name) != os.getpid():
            found.append(int(entry.parent.name))
    return found


async def _wait_until_free(profile: Path) -> None:
    """Waits until no other Chromium uses the profile, because two would damage it.

    A Chromium whose daemon was killed ends by itself in a moment.
    """
    for step in range(2 * _LOOKS_COUNT):
        if not browser_pids(profile):
            return
        if step == _LOOKS_COUNT:
            kill_browsers(profile)
        await asyncio.sleep(LEAVING_S / _LOOKS_COUNT)
    raise Unavailable("profile_busy", "another browser still uses this session's profile; try again")


def _prepare(profile: Path) -> None:
    """Creates the folder so that only this user can read it, and removes stale locks.

    Locks of a Chromium that is gone would keep a new one out.
    """
    try:
        profile.parent.mkdir(mode=_PROFILE_MODE, parents=True, exist_ok=True)
        profile.mkdir(mode=_PROFILE_MODE, exist_ok=True)
        for name in _LOCKS:
            (profile / name).unlink(missing_ok=True)
        preferences = profile / "Default" / "Preferences"
        if not preferences.exists():
            preferences.parent.mkdir(mode=_PROFILE_MODE, exist_ok=True)
            preferences.write_text(json.dumps(PREFERENCES))
    except OSError as cause:
        raise Unavailable("browser_failed", f"the profile's folder cannot be used: {cause.strerror}") from cause


async def _launch_context(driver: Playwright, profile: Path, executable: str, endpoint: ProxyDoor) -> BrowserContext:
    proxy = ProxySettings(
        server=endpoint.url, username=endpoint.username, password=endpoint.password, bypass="<-loopback>"
    )
    try:
        return await driver.chromium.launch_persistent_context(
            profile,
            executable_path=executable,
            headless=True,
            args=list(SWITCHES),
            ignore_default_args=UNWANTED,
            chromium_sandbox=os.geteuid() != 0,  # Chromium's own sandbox does not work as root.
            proxy=proxy,
            env=_environment(profile),
            accept_downloads=False,
            service_workers="block",
            viewport={"width": WIDTH_PX, "height": HEIGHT_PX},
            timeout=START_S * 1000,
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )
    except PlaywrightError as cause:
        log.warning("browser_failed", why=str(cause)[:2000])
        raise Unavailable("browser_failed", _why_not(str(cause))) from cause


def _environment(profile: Path) -> dict[str, str | float | bool]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {**kept, "HOME": str(profile)}


def _why_not(words: str) -> str:
    if "No usable sandbox" in words:
        return "Chromium has no sandbox here: let unprivileged users make user namespaces, or see docs/browser.md"
    if "shared libraries" in words:
        return "Chromium misses a library of the system; install it as a whole package (apt install chromium)"
    return "Chromium did not start; the daemon's log says why"
