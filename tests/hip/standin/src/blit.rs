//! AMD's own kernels, which HIP launches for copies and fills. Argument offsets are those of HIP 6.4 and 7.2.

use crate::kernel::Dispatch;
use crate::pages;

/// Finds the emulation of one of AMD's kernels.
pub(crate) fn find(name: &str) -> Option<fn(&Dispatch)> {
    match name.strip_prefix("__amd_rocclr_")? {
        "copyBuffer" => Some(copy),
        "copyBufferAligned" => Some(copy_aligned),
        "copyBufferRect" | "copyBufferRectAligned" => Some(copy_rectangle),
        "fillBufferAligned" => Some(fill),
        "fillBufferAligned2D" => Some(fill_rectangle),
        "streamOpsWrite" => Some(stream_write),
        "initHeap" => Some(|_| {}),
        _ => None,
    }
}

/// Source, destination, bytes; the rest says how the work is divided.
fn copy(dispatch: &Dispatch) {
    pages::copy(dispatch.wide(8), dispatch.wide(0), dispatch.wide(16));
}

/// Source, destination, their origins, elements, bytes of an element.
fn copy_aligned(dispatch: &Dispatch) {
    let unit = u64::from(dispatch.word(40));
    let (from, to) =
        (dispatch.wide(0) + unit * dispatch.wide(16), dispatch.wide(8) + unit * dispatch.wide(24));
    pages::copy(to, from, unit * dispatch.wide(32));
}

/// Source, destination, then three 32-byte vectors: row pitch, slice pitch and start of each, and the counts, the last
/// of which is the bytes of an element that everything else is counted in.
fn copy_rectangle(dispatch: &Dispatch) {
    let vector = |start: u64| [0, 8, 16, 24].map(|offset| dispatch.wide(start + offset));
    let ([from_row, from_slice, from_start, _], [to_row, to_slice, to_start, _]) =
        (vector(32), vector(64));
    let [width, height, depth, unit] = vector(96);
    for z in 0..depth {
        for y in 0..height {
            let from = dispatch.wide(0) + unit * (from_start + y * from_row + z * from_slice);
            let to = dispatch.wide(8) + unit * (to_start + y * to_row + z * to_slice);
            pages::copy(to, from, unit * width);
        }
    }
}

/// Destination, pattern, elements of the pattern, bytes of an element, end.
fn fill(dispatch: &Dispatch) {
    let size = u64::from(dispatch.word(16)) * u64::from(dispatch.word(20));
    let start = dispatch.wide(0);
    repeat(dispatch.wide(8), size, start, dispatch.wide(24).saturating_sub(start));
}

/// Four destinations of which one is given (by bytes of an element: 1, 2, 4, 8), pattern, elements of the pattern, offset,
/// width in bytes, rows, pitch; offset and pitch in elements.
fn fill_rectangle(dispatch: &Dispatch) {
    let given =
        [(0, 1), (8, 2), (16, 4), (24, 8)].map(|(offset, unit)| (dispatch.wide(offset), unit));
    let Some(&(start, unit)) = given.iter().find(|(address, _)| *address != 0) else { return };
    let size = u64::from(dispatch.word(40)) * unit;
    let (offset, width, rows, pitch) =
        (dispatch.wide(48), dispatch.wide(56), dispatch.wide(64), dispatch.wide(72));
    for row in 0..rows {
        repeat(dispatch.wide(32), size, start + unit * (offset + row * pitch), width);
    }
}

/// Writes a value to one of two addresses: 32 bits or 64, of which one is given.
fn stream_write(dispatch: &Dispatch) {
    let value = dispatch.wide(16).to_ne_bytes();
    match (dispatch.wide(0), dispatch.wide(8)) {
        (0, wide) => pages::write(wide, &value),
        (narrow, _) => pages::write(narrow, &value[..4]),
    }
}

/// Writes the `size` bytes at `pattern` over and over, for `length` bytes.
fn repeat(pattern: u64, size: u64, start: u64, length: u64) {
    let Ok(count) = usize::try_from(size) else { return };
    if count == 0 {
        return;
    }
    let pattern = pages::read(pattern, count);
    // A buffer of many patterns, since most patterns are a few bytes and most fills are large.
    let buffer = pattern.repeat((65_536 / count).max(1));
    let step = u64::try_from(buffer.len()).expect("a small buffer");
    for offset in (0..length).step_by(buffer.len()) {
        let part = usize::try_from((length - offset).min(step)).expect("at most the buffer");
        pages::write(start + offset, &buffer[..part]);
    }
}

#[cfg(test)]
mod tests {
    use super::repeat;

    #[test]
    fn a_fill_stops_where_it_should() {
        let pattern = *b"abc";
        let mut bytes = vec![b'.'; 200_000];
        let address = |bytes: &[u8]| bytes.as_ptr().expose_provenance() as u64;
        let start = bytes.as_mut_ptr().expose_provenance() as u64;
        repeat(address(&pattern), 3, start + 1, 199_990);
        assert_eq!(&bytes[..5], b".abca");
        assert!((1..199_991).all(|index| bytes[index] == pattern[(index - 1) % 3]));
        assert_eq!(&bytes[199_991..], b".........");
    }
}
