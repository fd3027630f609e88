//! Bytes that a problem in JSON may take, for each byte of it: a small file does not end a machine.

#[path = "../src/plan/file.rs"]
#[expect(dead_code, reason = "the command uses all of this file, and the test what reads")]
mod file;
#[path = "../../../tests/fuzz/src/meter.rs"]
#[expect(unreachable_pub, reason = "the fuzz package uses all of this file")]
mod meter;

#[global_allocator]
static ALLOCATOR: meter::Counting = meter::Counting;

/// Bytes for each byte of the largest problems that are made of what costs most.
const TIMES: usize = 32;

/// Bytes of each problem, about.
const SIZE: usize = 6 << 20;

/// Returns as many copies as a problem has room for, as the elements of a list.
fn many(one: &str) -> String {
    let mut all = format!("{one},").repeat(SIZE / (one.len() + 1));
    all.pop();
    all
}

/// Returns a problem of one buffer, with more about it.
fn one_buffer(more: &str) -> String {
    format!(r#"{{"version":1,"buffers":[{{"id":"a","lower":0,"upper":9,"size":1,{more}}}]}}"#)
}

/// One test: nothing else may allocate meanwhile.
#[test]
fn a_problem_takes_a_few_times_its_bytes() {
    let mut rows = Vec::new();
    for number in 0..SIZE / 41 {
        rows.push(format!(r#"{{"id":"{number:x}","lower":0,"upper":1,"size":1}}"#));
    }
    let rows = rows.join(",");
    let buffers = |more: &str| format!(r#"{{"version":1,"buffers":[{rows}]{more}}}"#);
    let pairs = many(r#"["0","0"]"#);
    let idle = r#""idle":[1,2],"recompute":{"cost":1,"reads":["#;
    let problems = [
        ("buffers", buffers("")),
        ("pairs", format!(r#"{{"version":1,"separate":[{pairs}],"buffers":[{rows}]}}"#)),
        ("regions", buffers(&format!(r#","regions":[{}]"#, many("{}")))),
        ("gaps", one_buffer(&format!(r#""gaps":[{}]"#, many("[1,2]")))),
        ("aliases", one_buffer(&format!(r#""alias":[{}]"#, many(r#""a""#)))),
        ("allowed regions", one_buffer(&format!(r#""regions":[{}]"#, many("0")))),
        ("reads", one_buffer(&format!("{idle}{}]}}", many(r#""a""#)))),
        ("depth", "[".repeat(SIZE)),
    ];
    for (what, problem) in problems {
        println!("{what}");
        let read = meter::within(TIMES, problem.as_bytes(), || file::read(&problem));
        assert_eq!(read.is_ok(), what != "depth", "{what}");
    }
}
