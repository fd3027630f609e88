//! `calibrate` on host memory.
use crate::support::{folder, json, omniheap_with, refuses, text};
use omniheap::placement::{Keyword as _, Probe, TableSize, read_profile};
use omniheap::{Backend as _, BackendKind, open};

#[test]
fn calibrate_measures_and_writes_a_profile_of_this_device() {
    let profiles = folder().join("profiles");
    let profiles = profiles.to_str().expect("a plain name");
    let lines = omniheap_with(profiles, &["calibrate", "--backend", "host", "--json"]);
    assert!(lines.status.success(), "{}", text(&lines.stderr));
    let lines: Vec<serde_json::Value> = text(&lines.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("one object a line"))
        .collect();
    for (probe, _) in Probe::WORDS {
        let of: Vec<_> = lines.iter().filter(|line| line["probe"] == *probe).collect();
        let sizes: Vec<_> = of.iter().filter_map(|line| line["table_bytes"].as_u64()).collect();
        assert_eq!(sizes, TableSize::ALL.map(TableSize::most), "{probe}: 256 bytes to 1 MiB");
        let is_timed = |run: &serde_json::Value| run["device_us"].is_f64();
        let runs = of.iter().flat_map(|line| line["runs"].as_array().expect("a list"));
        assert!(runs.into_iter().all(is_timed), "{probe}: the times themselves");
    }
    assert!(lines.iter().any(|line| line["staged_gigabytes_per_second"].is_number()));
    let path = folder().join("profiles/host-host-memory.profile");
    let device = open(BackendKind::Host, 0).expect("always there");
    read_profile(&path, device.caps()).expect("it is one of this device");
    refuses(&["calibrate", "--backend", "host"], 2, "give --out");
}

#[test]
fn regret_judges_what_calibration_never_saw() {
    let regret = json(&["calibrate", "--regret", "--backend", "host", "--filter", "palette"]);
    assert_eq!(regret.len(), 6, "six sizes");
    for line in regret {
        assert_eq!(line["agree"], true, "every place gives the same numbers: {line}");
        assert!(line["regret"].as_f64().is_some_and(|regret| regret >= 1.0), "{line}");
        assert!(line["measured_regret"].is_null(), "no profile: {line}");
    }
}
