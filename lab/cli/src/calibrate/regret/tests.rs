use super::*;

/// Returns a lookup that ran.
fn ran(judged: &Lookup) -> Line {
    Line {
        backend: "host",
        kernel: judged.table.name(),
        table_bytes: judged.table.bytes(),
        pattern: judged.pattern.word(),
        work: judged.work.word(),
        dependence: judged.dependence.word(),
        reads: judged.reads,
        reuse: 1,
        touches: None,
        items: 256,
        device_us: Some(1.0),
        constant_us: None,
        shared_us: None,
        best: "device",
        chosen: "device",
        regret: 1.0,
        measured_chosen: None,
        measured_regret: None,
        agree: true,
    }
}

#[test]
fn a_lookup_that_a_driver_refuses_is_named_and_the_others_are_kept() {
    let lookups: Vec<Lookup> = judged("").take(3).collect();
    let outcomes = lookups.iter().enumerate().map(|(index, judged)| {
        let outcome = if index == 1 { Err(Failure::failed("code -13")) } else { Ok(ran(judged)) };
        row("host", judged, outcome)
    });
    let rows: Vec<Row> = outcomes.collect();
    let lines: Vec<serde_json::Value> =
        rows.iter().map(|row| serde_json::to_value(row).expect("plain data")).collect();
    let has_error: Vec<bool> = lines.iter().map(|line| line["error"] == "code -13").collect();
    assert_eq!(has_error, [false, true, false]);
    assert_eq!(lines[1]["table_bytes"], lookups[1].table.bytes());
    assert!(lines[2]["regret"].is_f64());
    let failure = verdict(&rows).expect_err("one did not run");
    let told = failure.to_string();
    assert!(told.starts_with("1 of 3 lookups did not run"), "{told}");
    assert!(told.contains(lookups[1].table.name()) && told.contains("code -13"), "{told}");
    assert!(verdict(&rows[..1]).is_ok());
}
