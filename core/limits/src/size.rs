//! Sizes as the variables of several programs write them.

/// Reads bytes with an optional binary suffix: `4096`, `512M`, `8g`, `8GB`, `8GiB`. All suffixes count in powers of 1,024, as MPS and
/// `HAMi` count theirs. `None` for anything else, for zero, and for more than 64 bits.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &*text[digits.len()..].to_ascii_lowercase() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    let bytes = digits.trim_end().parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (bytes > 0).then_some(bytes)
}

/// Reads `0=8G,1=4G`: nothing where the device is not named, and `Some(None)` where the text is damaged.
pub(crate) fn of_device(text: &str, ordinal: u32) -> Option<Option<u64>> {
    for part in text.split(',') {
        let Some((device, size)) = part.split_once('=') else { return Some(None) };
        match device.trim().parse::<u32>() {
            Ok(device) if device == ordinal => return Some(parse_size(size)),
            Ok(_) => {}
            Err(_) => return Some(None),
        }
    }
    None
}
