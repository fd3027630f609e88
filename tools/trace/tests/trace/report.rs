//! The report: what it says, that its JSON is what the schema promises, and that the page holds it safely.

use crate::sample;
use flate2::read::ZlibDecoder;
use omniheap_trace::binary::{Record, Writer};
use omniheap_trace::ranks::Digest;
use omniheap_trace::report::{self, Columns, Comparison, Curve, HeapBytes, Origin, ReportData};
use omniheap_trace::{Backing, HeapId, Limits, Op, Residence, Trace};
use serde_json::Value;
use std::io::Read;

const SCHEMA: &str = include_str!("../../../../docs/report.schema.json");

fn demo() -> Trace {
    Trace::read(&sample::every_record()[..], &Limits::default()).unwrap()
}

/// Returns the name that JSON Schema has for the type of `value`.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Checks `value` against the part of JSON Schema that the published schema uses.
fn check(schema: &Value, root: &Value, value: &Value, path: &str) {
    if let Some(reference) = schema.get("$ref") {
        let name = reference.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
        return check(&root["$defs"][name], root, value, path);
    }
    if let Some(choices) = schema.get("anyOf") {
        let fitting = if value.is_null() { "null" } else { "" };
        let choice = choices
            .as_array()
            .unwrap()
            .iter()
            .find(|each| (each["type"] == "null") == (fitting == "null"));
        return check(choice.unwrap(), root, value, path);
    }
    let kind = kind_of(value);
    let allowed =
        schema["type"].as_str().unwrap_or_else(|| panic!("{path} has no type in the schema"));
    assert!(
        allowed == kind || (allowed == "number" && kind == "integer"),
        "{path} is {kind}, not {allowed}"
    );
    if let Some(values) = schema.get("enum") {
        assert!(values.as_array().unwrap().contains(value), "{path} is {value}");
    }
    if let Value::Array(items) = value {
        items.iter().for_each(|item| check(&schema["items"], root, item, &format!("{path}[]")));
    }
    if let Value::Object(fields) = value {
        assert_eq!(schema["additionalProperties"], false, "{path} must be closed");
        for name in schema["required"].as_array().unwrap() {
            assert!(fields.contains_key(name.as_str().unwrap()), "{path} lacks {name}");
        }
        for (name, field) in fields {
            let part = schema["properties"]
                .get(name)
                .unwrap_or_else(|| panic!("{path}.{name} is not in the schema"));
            check(part, root, field, &format!("{path}.{name}"));
        }
    }
}

#[test]
fn the_json_is_what_the_schema_says() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let mut data = report::from_trace(&demo(), "sample");
    data.comparison.push(Comparison::pytorch(&demo()));
    let json = serde_json::to_value(&data).unwrap();
    check(&schema, &schema, &json, "report");
    for list in
        ["facts", "comparison", "labels", "heaps", "moments", "out_of_memory", "defragmentation"]
    {
        assert!(!json[list].as_array().unwrap().is_empty(), "{list} must be exercised");
    }
    let back: ReportData = serde_json::from_value(json).unwrap();
    assert_eq!(back, data);
}

#[test]
fn moves_that_follow_each_other_are_one_pass() {
    let mut recorder = Writer::new(Vec::new());
    let (heap, backing) = (HeapId(0), Backing::Memory);
    recorder.record(0, &Record::BlockAllocate { block: 1, size: 1 << 20, heap, backing });
    for id in 0..3 {
        recorder.record(1, &sample::allocate(id, 100 + id));
        recorder.record(1, &Record::Bind { id, block: 1, offset: 1000 * (id + 1) });
    }
    for id in 0..3 {
        recorder.record(2, &Record::Move { id, block: 1, offset: 200 * id });
    }
    recorder.record(3, &sample::allocate(9, 1));
    recorder.record(4, &Record::Move { id: 0, block: 1, offset: 2000 });
    let trace = Trace::read(&recorder.finish().unwrap()[..], &Limits::default()).unwrap();
    let data = report::from_trace(&trace, "two passes");
    let passes: Vec<_> =
        data.defragmentation.iter().map(|pass| (pass.moves, pass.moved_bytes)).collect();
    assert_eq!(passes, [(3, 303), (1, 100)]);
    let first = &data.defragmentation[0];
    let offsets = |moment: Option<u32>| {
        let spans = &data.moments[moment.unwrap() as usize].blocks[0].spans;
        spans.iter().map(|span| span.offset).collect::<Vec<_>>()
    };
    assert_eq!(offsets(first.before), [1000, 2000, 3000]);
    assert_eq!(offsets(first.after), [0, 200, 400]);
}

#[test]
fn failures_and_passes_are_explained() {
    let data = report::from_trace(&demo(), "sample");
    let failure = &data.out_of_memory[0];
    assert_eq!((failure.size, failure.reserved_bytes), (5 << 20, 3 << 20));
    assert_eq!(failure.largest_hole.unwrap().size, (2 << 20) - 4096 - 512);
    assert!(!failure.fits_after_defragment, "no block is that large");
    let pass = &data.defragmentation[0];
    assert_eq!((pass.moves, pass.moved_bytes), (1, 4096));
    let offset =
        |moment: Option<u32>| data.moments[moment.unwrap() as usize].blocks[0].spans[0].offset;
    assert_eq!((offset(pass.before), offset(pass.after)), (512, 0));
    assert_eq!(data.moments.last().unwrap().blocks.len(), 1, "one block is left at the end");
}

pub(crate) fn column(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut packed = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group.iter().fold(0_u32, |bits, &c| bits << 6 | u32::from(value(c)))
            << (6 * (4 - group.len()));
        packed.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    let mut plain = Vec::new();
    ZlibDecoder::new(&packed[..]).read_to_end(&mut plain).unwrap();
    plain
}

pub(crate) fn numbers(text: &str) -> Vec<u64> {
    let (mut all, mut value, mut shift) = (Vec::new(), 0, 0);
    for byte in column(text) {
        value |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            all.push(value);
            (value, shift) = (0, 0);
        }
    }
    all
}

#[test]
fn packed_events_say_what_the_trace_says() {
    let columns: Columns = report::from_trace(&demo(), "sample").events.unwrap();
    assert_eq!(column(&columns.kinds), [2, 2, 0, 0, 4, 5, 6, 1, 3]);
    assert_eq!(numbers(&columns.steps), [1, 0, 1, 1, 2, 1, 1, 2, 0]);
    assert_eq!(numbers(&columns.sizes), [2 << 20, 1 << 20, 4096, 1 << 20, 5 << 20]);
    assert_eq!(numbers(&columns.labels), [2, 0]);
    assert_eq!(numbers(&columns.streams), [1, 0, 1]);
    assert_eq!(numbers(&columns.backs), [2, 1, 1]);
    assert_eq!(numbers(&columns.blocks), [0, 1, 1, 2, 0, 1]);
    assert_eq!(numbers(&columns.offsets), [512, 0, 0]);
}

#[test]
fn packed_sleeps_are_read_back() {
    let mut writer = Writer::new(Vec::new());
    let (heap, backing) = (HeapId(0), Backing::Pages);
    for block in [5, 6] {
        writer.record(0, &Record::BlockAllocate { block, size: 1 << 30, heap, backing });
    }
    writer.record(1, &Record::PagesTake { bytes: 1 << 20, heap });
    for (time, residence) in [(2, Residence::File), (3, Residence::Device)] {
        writer.record(time, &Record::Reside { block: 6, residence });
    }
    writer.record(3, &Record::HostPagesTake { bytes: 1 << 21, heap: HeapId(2) });
    writer.record(3, &Record::HostPagesReturn { bytes: 1 << 20, heap: HeapId(2) });
    writer.record(4, &Record::PagesReturn { bytes: 1 << 20, heap });
    let trace = Trace::read(&writer.finish().unwrap()[..], &Limits::default()).unwrap();
    let data = report::from_trace(&trace, "sleeps");
    let columns = data.events.as_ref().unwrap();
    assert_eq!(column(&columns.kinds), [9, 9, 7, 10, 10, 11, 12, 8]);
    assert_eq!(numbers(&columns.blocks), [0, 0, 0, 1, 1, 2, 2, 0]);
    let sizes = [1 << 30, 1 << 30, 1 << 20, 2, 0, 1 << 21, 1 << 20, 1 << 20];
    assert_eq!(numbers(&columns.sizes), sizes);
    // As a rank's report it is read past them, to the pages that were given back.
    let digest = Digest::of_report(&data).expect("packed above");
    assert_eq!((digest.peak_reserved_bytes, digest.reserved_bytes), (Some(1 << 20), Some(0)));
}

#[test]
fn a_model_gives_places_to_a_trace_without() {
    let plain = Trace::read(&sample::churn(2000)[..], &Limits::default()).unwrap();
    let bound = report::bind_by_model(&plain, &Limits::default()).unwrap();
    let asked = |trace: &Trace| {
        let kept = trace
            .events()
            .iter()
            .filter(|event| !matches!(event.op, Op::Bind { .. } | Op::BlockAllocate { .. }));
        kept.copied().collect::<Vec<_>>()
    };
    assert_eq!(asked(&bound), asked(&plain));
    assert_eq!(
        bound.summary().peak_reserved_bytes,
        omniheap_trace::model::pytorch(&plain).peak_reserved_bytes
    );
    let places = bound.events().iter().filter(|event| matches!(event.op, Op::Bind { .. })).count();
    assert_eq!(places, 2000);
}

#[test]
fn a_model_is_named_and_the_recordings_own_figures_stay() {
    let plain = Trace::read(&sample::churn(2000)[..], &Limits::default()).unwrap();
    let recorded = report::from_trace(&plain, "plain");
    let modelled = report::from_trace_by_model(&plain, "plain", &Limits::default()).unwrap();
    assert_eq!(modelled.placed_by_model.as_deref(), Some("PyTorch's default policy"));
    assert_eq!(recorded.placed_by_model, None);
    assert_eq!(modelled.figures, recorded.figures);
    assert_eq!((recorded.figures.peak_reserved_bytes, recorded.figures.driver_calls), (None, None));
    let kinds = |data: &ReportData| column(&data.events.as_ref().unwrap().kinds);
    assert!(kinds(&modelled).contains(&2) && !kinds(&recorded).contains(&2));
}

#[test]
fn the_models_curve_reaches_its_peak() {
    let trace = Trace::read(&sample::churn(2000)[..], &Limits::default()).unwrap();
    let model = Comparison::pytorch(&trace);
    assert_eq!(model.origin, Origin::Model);
    let curve = model.curve.unwrap();
    let held = numbers(&curve.bytes);
    assert_eq!(held.iter().max(), Some(&model.peak_reserved_bytes));
    assert_eq!((held.len() as u64, numbers(&curve.steps)[0]), (curve.count, 0));
}

#[test]
fn a_curve_is_packed_as_steps() {
    let curve = Curve::new(&[(0, 5), (3, 700), (1000, 0)]);
    assert_eq!(curve.count, 3);
    assert_eq!(numbers(&curve.steps), [0, 3, 997]);
    assert_eq!(numbers(&curve.bytes), [5, 700, 0]);
}

#[test]
fn reserved_addresses_are_not_memory() {
    let trace = Trace::read(&sample::paged()[..], &Limits::default()).unwrap();
    let data = report::from_trace(&trace, "paged");
    assert_eq!(data.figures.peak_reserved_bytes, Some(6 << 20));
    let moment = data.moments.last().unwrap();
    assert_eq!(moment.reserved, [HeapBytes { heap: 2, bytes: 4 << 20 }]);
    let block = &moment.blocks[0];
    assert_eq!((block.size, &block.unmapped), (9 << 20, &None), "nobody recorded where pages are");
}

#[test]
fn hostile_names_stay_text() {
    let mut data = report::from_trace(&demo(), "</title><script>alert(1)</script>");
    data.labels[0].text = "</script><img src=x onerror=alert(2)>".into();
    let mut page = Vec::new();
    report::write_html(&data, &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert_eq!(page.matches("</script>").count(), 2, "the data and the program, nothing else");
    assert_eq!(page.matches("<img").count(), 0);
    assert!(page.contains("<title>&lt;/title&gt;&lt;script&gt;"));
    assert!(page.contains("default-src 'none'"));
    let outside = page.lines().filter(|line| line.contains("http://") || line.contains("https://"));
    assert_eq!(outside.count(), 0, "nothing is loaded from elsewhere");
}

/// Checks the facts of a live report: what the device is, and what each rung served.
fn says_what_the_manager_is_and_did(data: &ReportData, report: &omniheap_core::Report) {
    let names: Vec<&str> = data.facts.iter().map(|fact| &*fact.name).collect();
    assert_eq!(names[..3], ["backend", "device", "driver"]);
    assert!(!names.contains(&"asleep"), "nothing sleeps");
    assert_eq!((&*data.moments[0].title, data.moments[0].time_us), ("now", 0));
    for (rung, count) in omniheap_core::Rung::ALL.into_iter().zip(report.rungs) {
        let name = format!("rung {}", omniheap_core::Keyword::word(rung));
        let said = data.facts.iter().find(|fact| fact.name == name);
        assert_eq!(said.map_or(0, |fact| fact.value.parse().unwrap()), count, "{rung:?}");
    }
    assert!(report.rungs.iter().sum::<u64>() > 0);
    let heaps = |heap: &report::Heap| heap.size.is_some() && !heap.name.is_empty();
    assert!(!data.heaps.is_empty() && data.heaps.iter().all(heaps), "{:?}", data.heaps);
}

#[test]
fn a_live_manager_has_a_report_with_names_and_a_post_mortem() {
    use omniheap_core::{Manager, ManagerConfig, PoolConfig, Request};
    let host = omniheap_host::Host::new();
    let manager = Manager::with_config(host, ManagerConfig::default().plain());
    let (heap, _) = manager.caps().heap_ids().next().unwrap();
    let one = PoolConfig::new().block(1 << 20).maximum(1 << 20).lanes(1);
    let pool = manager.create_pool(heap, one).unwrap();
    let names = ["a", "b", "c", "d"];
    let mut live: Vec<_> = names
        .iter()
        .map(|name| pool.allocate(&Request::new(256 << 10).name(name)).unwrap())
        .collect();
    drop(live.remove(2));
    drop(live.remove(0));
    let before = report::from_manager(&manager.report(), manager.caps(), "before");
    says_what_the_manager_is_and_did(&before, &manager.report());
    let error = pool.allocate(&Request::new(600 << 10)).unwrap_err();
    let mut failed = report::from_manager(&manager.report(), manager.caps(), "failed");
    failed.add_failure(error.shortage().unwrap());
    let found = &failed.out_of_memory[0];
    assert_eq!((found.size, found.free_bytes), (600 << 10, 512 << 10));
    assert!(found.largest_hole.is_some() && !found.fits_after_defragment);

    let large = pool.allocate(&Request::new(400 << 10).name("large")).expect("after a move");
    let mut after = report::from_manager(&manager.report(), manager.caps(), "after");
    after.add_before(&before, "a move for a large request");
    let pass = &after.defragmentation[0];
    assert!(pass.moves > 0 && pass.moved_bytes >= 400 << 10, "{pass:?}");
    let [is, was] = [pass.after, pass.before].map(|at| &after.moments[at.unwrap() as usize]);
    let text = |label: u32| after.labels[label as usize - 1].text.as_str();
    let there = |moment: &report::Moment| {
        let spans = moment.blocks.iter().flat_map(|block| &block.spans);
        spans.map(|span| text(span.label).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(there(was), ["b", "d"]);
    assert!(there(is).contains(&"large".to_owned()));
    let names: std::collections::BTreeSet<_> =
        after.labels.iter().map(|label| &label.text).collect();
    assert_eq!(names.len(), after.labels.len(), "one name is one label");
    [&before, &failed, &after].into_iter().for_each(survives_json);
    drop((live, large));
}

#[test]
fn maps_of_pages_hold_what_is_reserved() {
    use omniheap_core::{Manager, PoolConfig, Request};
    let manager = Manager::new(omniheap_host::Host::new());
    let (heap, _) = manager.caps().heap_ids().next().unwrap();
    let paged = PoolConfig::new().paged().maximum(32 << 20).lanes(1);
    let pool = manager.create_pool(heap, paged).unwrap();
    let mut live: Vec<_> = (0..8).map(|_| pool.allocate(&Request::new(4 << 20)).unwrap()).collect();
    for at in [6, 4, 2, 0] {
        drop(live.remove(at));
    }
    // The holes' pages are mapped elsewhere: more addresses than memory.
    live.push(pool.allocate(&Request::new(12 << 20).name("large")).unwrap());
    let data = report::from_manager(&manager.report(), manager.caps(), "paged");
    let moment = &data.moments[0];
    let gaps =
        |block: &report::MapBlock| block.unmapped.iter().flatten().map(|gap| gap.size).sum::<u64>();
    let memory: u64 = moment.blocks.iter().map(|block| block.size - gaps(block)).sum();
    assert_eq!(moment.reserved_bytes(), manager.totals().reserved_bytes);
    assert_eq!(memory, moment.reserved_bytes());
    assert!(moment.blocks.iter().any(|block| gaps(block) > 0), "{moment:?}");
    survives_json(&data);
}

#[test]
fn a_live_report_tells_tags_and_what_may_be_moved() {
    use omniheap_core::{Manager, Request, Tag, Timelines};
    use report::SpanState::{Live, Pending, Pinned};
    let host = omniheap_host::Host::new();
    let gate = host.hold(omniheap_core::TimelineId::MAIN).unwrap();
    let manager = Manager::new(host);
    let take = |name| manager.allocate(&Request::new(4096).tag(Tag(7)).name(name)).unwrap();
    let (free, fixed, late) = (take("free"), take("fixed"), take("late"));
    let plain = manager.allocate(&Request::new(4096)).unwrap();
    let pin = fixed.pin();
    let after = manager.backend().mark(omniheap_core::TimelineId::MAIN).unwrap();
    let point = omniheap_core::Point { timeline: omniheap_core::TimelineId::MAIN, epoch: after };
    late.free_after(point);
    let data = report::from_manager(&manager.report(), manager.caps(), "live");
    let path = |mut label: u32| {
        let mut path = Vec::new();
        while let Some(at) = label.checked_sub(1) {
            path.insert(0, data.labels[at as usize].text.as_str());
            label = data.labels[at as usize].parent;
        }
        path.join("/")
    };
    let spans = data.moments[0].blocks.iter().flat_map(|block| &block.spans);
    let mut seen: Vec<_> = spans.map(|span| (path(span.label), span.state)).collect();
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    let named = |name: &str| format!("tag 7/{name}");
    let expected = [
        (String::new(), Live),
        (named("fixed"), Pinned),
        (named("free"), Live),
        (named("late"), Pending),
    ];
    assert_eq!(seen, expected);
    survives_json(&data);
    drop(pin);
    drop((gate, plain, free, fixed));
}

/// Checks a report's JSON against the schema, and that it is read back as it was.
fn survives_json(data: &ReportData) {
    let mut file = Vec::new();
    report::write_json(data, &mut file).unwrap();
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    check(&schema, &schema, &serde_json::from_slice(&file).unwrap(), "report");
    assert_eq!(report::read_json(&file[..]).unwrap(), *data);
}

#[test]
fn what_fits_and_what_it_gains_are_part_of_the_schema() {
    let mut data = report::from_trace(&demo(), "sample");
    let gain = |change: &str, gained_bytes, not_known| {
        let (change, fits) = (change.to_owned(), Some(true));
        report::Gain { change, gained_bytes, fits, not_known }
    };
    data.gains = vec![gain("a", Some(-5), None), gain("b", None, Some("no labels".to_owned()))];
    data.fit = Some(report::Fit {
        fits: false,
        capacity_bytes: 8 << 30,
        left_bytes: -3,
        peak_reserved_bytes: (8 << 30) + 3,
        allocator: "omniheap".to_owned(),
    });
    survives_json(&data);
}

#[test]
fn a_report_that_points_outside_itself_is_refused() {
    let good = report::from_trace(&demo(), "sample");
    let spoils: [fn(&mut ReportData); 4] = [
        |data| data.schema = 1,
        |data| data.labels[0].parent = 1,
        |data| data.moments[0].blocks[0].spans[0].label = data.labels.len() as u32 + 1,
        |data| data.out_of_memory[0].moment = u32::try_from(data.moments.len()).ok(),
    ];
    for spoil in spoils {
        let mut data = good.clone();
        spoil(&mut data);
        let mut file = Vec::new();
        report::write_json(&data, &mut file).unwrap();
        report::read_json(&file[..]).unwrap_err();
    }
    let other = report::read_json(&b"{\"schema\":1}"[..]).unwrap_err();
    assert!(other.to_string().contains("another schema version"), "{other}");
    let broken = report::read_json(&b"{\"schema\":2}"[..]).unwrap_err();
    assert!(broken.to_string().contains("not JSON of its schema"), "{broken}");
}
