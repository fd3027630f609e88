//! Seeds of random tests.

/// The seed of a random test, printed so that a failure can be run again.
///
/// `OMNIHEAP_SEED` overrides the default: a number, or `clock` for another one on every run.
///
/// # Panics
///
/// Panics when `OMNIHEAP_SEED` is neither a number nor `clock`.
#[must_use]
pub fn seed(test: &str) -> u64 {
    let seed = match std::env::var("OMNIHEAP_SEED") {
        Err(_) => 0x0051_EED0,
        Ok(text) if text == "clock" => {
            let now = std::time::SystemTime::now();
            let since = now.duration_since(std::time::UNIX_EPOCH).expect("the clock is past 1970");
            since.as_secs() << 20 | u64::from(since.subsec_micros())
        }
        Ok(text) => text.parse().expect("OMNIHEAP_SEED is a decimal number or `clock`"),
    };
    println!("{test}: OMNIHEAP_SEED={seed}");
    seed
}
