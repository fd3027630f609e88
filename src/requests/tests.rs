use super::*;
use omniheap_core::{Contents, Usage};

#[test]
fn a_file_says_everything_that_the_builder_says() {
    let text = r#"[{"name": "keys", "size": 4096, "align": 256, "writes": "host-per-frame", "reads": "both",
        "pattern": "fields", "work": "light", "dependence": "chained", "reuse": 9, "touches": 512, "lifetime": "frame", "coherence": "needed",
        "substitute": "forbidden", "spill": "allowed", "privacy": "secret"}]"#;
    let read = parse_requests(text).expect("a list");
    let built = Request::new(4096)
        .usage(Usage::Upload)
        .align(Align::of(256))
        .access(Access::Both)
        .pattern(Pattern::Fields)
        .work(Work::Light)
        .dependence(Dependence::Chained)
        .reuse(9)
        .touches(512)
        .lifetime(Lifetime::Frame)
        .coherent()
        .no_substitute()
        .may_spill()
        .secret()
        .name("keys");
    assert_eq!(read[0].request(), built);
    assert_eq!(built.contents, Contents::Any);
    let written = serde_json::to_string(&read).expect("plain data");
    assert_eq!(parse_requests(&written).expect("its own text"), read);
}

#[test]
fn what_a_file_leaves_out_is_as_in_the_builder() {
    let read = parse_requests(r#"[{"size": 7}]"#).expect("a list");
    assert_eq!(read[0].request(), Request::new(7));
}

#[test]
fn what_no_request_can_be_is_refused_with_the_limit_and_the_value() {
    let why = |text: &str| parse_requests(text).expect_err("refused").to_string();
    let says = |text: &str, words: &[&str]| {
        let told = why(text);
        assert!(words.iter().all(|word| told.contains(word)), "{text}: {told}");
    };
    says(r#"[{"size": 1}, {"size": 0}]"#, &["request 1", "size is 0"]);
    says(r#"[{"size": 8, "align": 3}]"#, &["request 0", "align is 3", "power of two"]);
    says(r#"[{"size": 18446744073709551615, "align": 2}]"#, &["18446744073709551615", "limit"]);
    says(r#"[{"size": 18446744073709551616}]"#, &["line 1", "u64"]);
    says(r#"[{"size": NaN}]"#, &["line 1", "column"]);
    says(r#"[{"size": "NaN"}]"#, &["NaN", "u64"]);
    says(r#"[{"size": 1.5}]"#, &["1.5", "u64"]);
    says(r#"[{"size": -4}]"#, &["-4", "u64"]);
    says(r#"[{"size": 4, "reuse": 4294967296}]"#, &["4294967296", "u32"]);
    says(r#"[{"size": 4, "heap": 1}]"#, &["unknown field", "heap"]);
    says(r#"[{"size": 4, "pattern": "sideways"}]"#, &["sideways", "broadcast"]);
    says(r#"[{"align": 4}]"#, &["missing field", "size"]);
    says(r#"[{"size": 4, "size": 5}]"#, &["duplicate field", "size"]);
    says("{}", &["list of requests"]);
}
