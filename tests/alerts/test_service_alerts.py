"""The alerts on the service through the real promtool, one scene an alert, with what must not fire beside it."""

from pathlib import Path

import pytest

from tests.fixtures.promtool import Scene, check_scenes

BOUNDS = (0.001, 1.0, 2.5, 10.0, 30.0)
NEVER: dict[str, range] = {}


def target(name: str) -> str:
    return f'job="offpolicy-monitor",instance="{name}"'


def answered(name: str, route: str, **counts: str) -> dict[str, str]:
    """Requests by status since the process started."""
    labels = f'{target(name)},route="{route}"'
    return {
        f'offpolicy_request_seconds_count{{{labels},status="{status[1:]}"}}': values
        for status, values in counts.items()
    }


def rejected(name: str, reason: str, values: str) -> dict[str, str]:
    return {f'offpolicy_rejected_requests_total{{{target(name)},reason="{reason}"}}': values}


def transactions(name: str, within: float) -> dict[str, str]:
    """Ten per minute, all of them just up to a bound."""
    return {
        f'offpolicy_store_seconds_bucket{{{target(name)},le="{bound}"}}': "0+10x40" if bound >= within else "0x40"
        for bound in BOUNDS
    } | {f'offpolicy_store_seconds_bucket{{{target(name)},le="+Inf"}}': "0+10x40"}


def down() -> Scene:
    other = 'job="monitor",instance="named otherwise"'
    series = {
        f"up{{{target('down')}}}": "1 1 0x9 1x20",
        f"up{{{target('never up')}}}": "0x40",
        f"up{{{target('restarted')}}}": "1 1 0 0 1x30",
        f"up{{{target('missed')}}}": "1 1 0 1x30",
        f"up{{{target('healthy')}}}": "1x40",
        f"up{{{other}}}": "1 1 0x9 1x20",
        f"offpolicy_build_info{{{other}}}": "1 1 stale",
        'up{job="node",instance="not ours"}': "0x40",
    }
    outage = range(4, 12)
    firing = {"down": outage, "never up": range(2, 40), "named otherwise": outage}
    return Scene("down", series, range(20), {("ServiceDown", "critical"): firing}, by="instance")


def missing() -> Scene:
    series = {
        'offpolicy_build_info{job="lost",instance="a"}': "1 1 1 stale",
        'up{job="lost",instance="a"}': "1 1 1 stale",
        'offpolicy_build_info{job="moved",instance="a"}': "1 1 1 stale",
        'offpolicy_build_info{job="moved",instance="b"}': "_ _ _ _ _ 1x40",
        'up{job="moved",instance="a"}': "1 1 1 stale",
        'up{job="moved",instance="b"}': "_ _ _ _ _ 1x40",
    }
    return Scene("missing", series, range(25), {("ServiceMissing", "warning"): {"lost": range(18, 25)}}, by="job")


def errors() -> Scene:
    post = "/v1/runs/{run}/batches"
    series = (
        answered("few", post, s200="0+98x20 1960+100x40", s500="0+2x20 40x40")
        | answered("many", post, s200="0+80x40", s503="0+20x40")
        | answered("healthy", post, s200="0+99x40", s422="0x40")
        | answered("restarted", post, s200="0+99x9 0+99x40", s500="3x9 0x40")
        | answered("missed", post, s200="0+98x9 stale 980+98x40", s500="0+2x9 stale 20+2x40")
        | answered("pages", "/", s200="0+9x40", s500="0+1x40")
    )
    firing = {
        ("ServerErrors", "warning"): {"few": range(6, 24), "many": range(6, 40), "missed": range(6, 40)},
        ("ServerErrors", "critical"): {"many": range(6, 40)},
    }
    minutes = (0, 4, 5, 7, 9, 10, 11, 12, 20, 23, 27, 35)
    return Scene("errors", series, minutes, firing, by="instance")


def refused() -> Scene:
    post = "/v1/runs/{run}/batches"
    series = (
        answered("few", post, s200="0+90x20 1800+100x40", s422="0+10x20 200x40")
        | answered("most", post, s200="0+1x40", s422="0+20x40")
        | answered("healthy", post, s200="0+9x40")
        | answered("readers", "/v1/runs/{run}", s404="0+9x40")
        | answered("idle", post, s200="9x40", s422="9x40")
    )
    firing = {
        ("BatchesRefused", "warning"): {"few": range(6, 26), "most": range(6, 40)},
        ("BatchesRefused", "critical"): {"most": range(6, 40)},
    }
    return Scene("refused", series, (0, 4, 5, 7, 12, 20, 24, 28, 35), firing, by="instance")


#: What is told of batches that are not taken: reason -> alert, severity, and the minutes in which it fires.
REJECTIONS = {
    "busy": ("AdmissionFull", "warning", range(15, 18)),
    "store-unavailable": ("StoreFailing", "critical", range(15, 18)),
    "storage-full": ("StorageFull", "critical", range(13, 23)),
}


def rejections() -> Scene:
    """Once at minute 13, in a series that is born then or that had counted others before; Prometheus starts at 0."""
    series, firing = dict[str, str](), dict[tuple[str, str], dict[str, range]]()
    for reason, (alert, severity, minutes) in REJECTIONS.items():
        values = {
            f"{alert} born": "_x13 1x40",
            f"{alert} counted": "5x12 6x40",
            f"{alert} old and missed": "5x9 stale 5x40",
            f"{alert} restarted": "5x9 stale stale 0x40",
        }
        for name, value in values.items():
            series |= rejected(name, reason, value)
        series |= rejected(f"{alert} otherwise", "invalid-field", "0+5x40")
        for name in (*values, f"{alert} otherwise"):
            series |= {f"up{{{target(name)}}}": "1x40", f"offpolicy_build_info{{{target(name)}}}": "1x40"}
        firing[alert, severity] = {f"{alert} born": minutes, f"{alert} counted": minutes}
    return Scene("rejections", series, range(35), firing, by="instance")


def slow() -> Scene:
    series = transactions("slow", 2.5) | transactions("stuck", 30.0) | transactions("healthy", 0.001)
    firing = {
        ("StoreSlow", "warning"): {"slow": range(11, 40), "stuck": range(11, 40)},
        ("StoreSlow", "critical"): {"stuck": range(11, 40)},
    }
    return Scene("slow", series, (0, 5, 10, 12, 20), firing, by="instance")


def device() -> Scene:
    series = {
        f'offpolicy_build_info{{{target("failed")},version="1",torch="2",device="cuda:0"}}': "1x20",
        f'offpolicy_device_info{{{target("failed")},device="cuda:0"}}': "1 1 stale",
        f'offpolicy_device_info{{{target("failed")},device="cpu"}}': "_ _ 1x20",
        f'offpolicy_build_info{{{target("healthy")},version="1",torch="2",device="cpu"}}': "1x5 stale 1x20",
        f'offpolicy_device_info{{{target("healthy")},device="cpu"}}': "1x5 stale 1x20",
    }
    firing = {("DeviceFallback", "warning"): {"failed": range(3, 20)}}
    return Scene("device", series, range(15), firing, by="instance")


def compilation() -> Scene:
    family = "compilation_failed"
    series = (
        gauge("failed", family, "0x3 1x40")
        | gauge("healthy", family, "0x40")
        | gauge("mended", family, "1x3 0x40")
        | gauge("started again", family, "1x12 stale 0x30")
    )
    firing = {("CompilationFailed", "warning"): {"failed": range(9, 40), "started again": range(5, 13)}}
    return Scene("compilation", series, (0, 4, 5, 8, 9, 12, 13, 20), firing, by="instance")


def notifications() -> Scene:
    def posts(name: str, outcome: str, values: str) -> dict[str, str]:
        return {f'offpolicy_notifications_total{{{target(name)},target="webhook",outcome="{outcome}"}}': values}

    series = (
        posts("failing", "failed", "0x3 0+1x10 10x30")
        | posts("refused", "refused", "0x3 1x40")
        | posts("healthy", "sent", "0+1x40")
        | posts("restarted", "failed", "9x9 stale 0x30")
    )
    firing = {"failing": range(10, 24), "refused": range(9, 14)}
    minutes = (0, 4, 8, 10, 12, 20, 25, 30)
    return Scene("notifications", series, minutes, {("NotificationsFailing", "warning"): firing}, by="instance")


def gauge(name: str, family: str, values: str, labels: str = "") -> dict[str, str]:
    return {f"offpolicy_{family}{{{target(name)}{labels}}}": values}


def stuck() -> Scene:
    measure = ',stage="measure"'
    series = (
        gauge("late", "oldest_job_seconds", "0x4 31 91 40x9 0x20", measure)
        | gauge("still", "oldest_job_seconds", "0x4 60+60x30", measure)
        | gauge("busy", "oldest_job_seconds", "29 0 29 29x30", measure)
        | gauge("a peak", "oldest_job_seconds", "0x4 200 0x30", measure)
    )
    firing = {
        ("StageStuck", "warning"): {"late": range(7, 17), "still": range(7, 40)},
        ("StageStuck", "critical"): {"still": range(8, 40)},
    }
    return Scene("stuck", series, (0, 5, 6, 7, 8, 12, 16, 17, 25), firing, by="instance")


def disk() -> Scene:
    of_file = ',database="sqlite"'
    series = (
        gauge("low", "database_free_bytes", "1.9e9x60", of_file)
        | gauge("full", "database_free_bytes", "3e9x9 1e8x60", of_file)
        | gauge("filling", "database_free_bytes", "19e9-5e7x60", of_file)
        | gauge("level", "database_free_bytes", "5e9x60", of_file)
        | gauge("large", "database_free_bytes", "9e11-2e9x60", of_file)
    )
    firing = {
        ("DiskLow", "warning"): {"low": range(15, 60), "full": range(25, 60), "filling": range(17, 60)},
        ("DiskLow", "critical"): {"full": range(11, 60)},
    }
    return Scene("disk", series, (0, 9, 11, 14, 30, 35), firing, by="instance")


def certificates() -> Scene:
    """Unix time is 0 when the scene begins."""
    of_file = ',file="chain.pem"'
    days = {"later": "2592000x60", "soon": "1123200x60", "at once": "129600x60", "renewed": "129600x19 7776000x40"}
    family, series = "certificate_expiry_timestamp_seconds", dict[str, str]()
    for name, ends in days.items():
        series |= gauge(name, family, ends, of_file)
    early = {"at once": range(5, 60), "renewed": range(5, 20)}
    firing = {
        ("CertificateEnds", "warning"): {"soon": range(5, 60), **early},
        ("CertificateEnds", "critical"): early,
    }
    return Scene("certificate", series, (0, 4, 6, 15, 22, 24), firing, by="instance")


def failed_steps() -> Scene:
    series = (
        gauge("failed", "step_failures_total", "0x9 1x60")
        | gauge("healthy", "step_failures_total", "0x60")
        | gauge("long ago", "step_failures_total", "7x60")
    )
    firing = {("StepsFailing", "warning"): {"failed": range(10, 40)}}
    return Scene("failed steps", series, (0, 8, 11, 20, 35, 39, 40), firing, by="instance")


def leaders() -> Scene:
    def of(job: str, *values: str) -> dict[str, str]:
        return {f'offpolicy_leader{{job="{job}",instance="{number}"}}': value for number, value in enumerate(values)}

    series = of("lost", "1x4 0x20", "0x24") | of("handed over", "1x4 0x20", "0x5 1x20") | of("alone", "1x30")
    return Scene("leaders", series, range(20), {("NoLeader", "critical"): {"lost": range(7, 25)}}, by="job")


def restarts() -> Scene:
    series = (
        gauge("often", "start_time_seconds", "1x4 2x4 3x4 4x100")
        | gauge("twice", "start_time_seconds", "1x4 2x4 3x100")
        | gauge("never", "start_time_seconds", "1x100")
    )
    firing = {("Restarting", "warning"): {"often": range(15, 65)}}
    return Scene("restarts", series, (0, 10, 14, 15, 40, 64, 65), firing, by="instance")


def scrapes() -> Scene:
    def of(name: str, values: str, ours: bool = True) -> dict[str, str]:
        info = {f"offpolicy_build_info{{{target(name)}}}": "1x60", f"up{{{target(name)}}}": "1x60"} if ours else {}
        return {f"scrape_duration_seconds{{{target(name)}}}": values} | info

    series = (
        of("slow", "6x60") | of("a moment", "1x9 9x5 1x60") | of("quick", "0.2x60") | of("other", "9x60", ours=False)
    )
    firing = {("ScrapeSlow", "warning"): {"slow": range(10, 60)}}
    return Scene("scrapes", series, (0, 9, 10, 15, 20), firing, by="instance")


SCENES = (
    stuck(),
    disk(),
    certificates(),
    failed_steps(),
    leaders(),
    restarts(),
    scrapes(),
    down(),
    missing(),
    errors(),
    refused(),
    rejections(),
    slow(),
    device(),
    compilation(),
    notifications(),
)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_an_alert_on_the_service_fires_when_it_should_and_at_no_other_time(scene: Scene, tmp_path: Path) -> None:
    check_scenes(tmp_path, [scene])
