//! The fuzz targets of the manager on their corpus, with a stable compiler: what a fuzzer once found is tried for ever.
use omniheap_model::{configuration, session};
use std::fs;
use std::path::Path;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus");

fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(CORPUS).join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut count = 0;
    for entry in entries {
        let path = entry.expect("the folder can be listed").path();
        println!("{}", path.display());
        target(&fs::read(&path).expect("the file can be read"));
        count += 1;
    }
    assert!(count >= 10, "{name} has {count} inputs");
}

#[test]
fn operations() {
    replay("operations", session::run);
}

#[test]
fn faults() {
    replay("faults", session::run_with_faults);
}

#[test]
fn settings() {
    replay("configuration", configuration::run);
}
