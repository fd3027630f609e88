//! The fuzz target on its corpus and on mutations of it.
use std::fs;
use std::path::Path;

#[path = "../../../tests/fuzz/src/meter.rs"]
#[expect(unreachable_pub, reason = "the fuzz package counts with the same functions")]
mod meter;
#[path = "../../../tests/fuzz/src/arbiter.rs"]
#[expect(unreachable_pub, reason = "the fuzz package makes targets of these functions")]
mod target;

#[global_allocator]
static ALLOCATOR: meter::Counting = meter::Counting;

/// Bytes for each byte of a session, which keeps all that the books say.
const TIMES: usize = 32;

#[test]
fn the_corpus_and_its_mutations_keep_the_books_sound() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/arbiter_frames");
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).expect("it is below one")
    };
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("a corpus") {
        let whole = fs::read(entry.expect("a file").path()).expect("a file");
        // Long enough that what is allowed for any session does not count.
        let long = whole.repeat((1 << 21) / whole.len());
        meter::within(TIMES, &long, || target::frames(&long));
        for _ in 0..2000 {
            let mut bytes = whole.clone();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                match random(3) {
                    0 => bytes[at] = u8::try_from(random(256)).expect("a byte"),
                    1 => drop(bytes.drain(at..)),
                    _ => bytes.extend_from_within(at..),
                }
                if bytes.is_empty() {
                    bytes.push(0);
                }
            }
            target::frames(&bytes);
        }
        count += 1;
    }
    assert!(count >= 3);
}
