//! CSV, a buffer of whole lines at a time.

use std::io::{self, Write};

/// Bytes after which lines are written.
const BUFFER: usize = 64 << 10;

/// Lines on their way to `W`. After a write fails, lines are counted as lost.
#[derive(Debug)]
pub(super) struct Lines<W: Write> {
    sink: W,
    text: Vec<u8>,
    pending: u64,
    lost: u64,
    failure: Option<io::Error>,
}

impl<W: Write> Lines<W> {
    pub(super) fn new(sink: W) -> Self {
        let mut text = Vec::with_capacity(BUFFER + 128);
        text.extend_from_slice(b"op,id,size,stream,time_us\n");
        Self { sink, text, pending: 0, lost: 0, failure: None }
    }

    /// Adds a line; `size` is empty where the event has none.
    pub(super) fn put(&mut self, op: u8, id: u64, size: Option<u64>, stream: u16, time_us: u64) {
        if self.failure.is_some() {
            self.lost += 1;
            return;
        }
        self.text.extend_from_slice(&[op, b',']);
        number(&mut self.text, id);
        self.text.push(b',');
        if let Some(size) = size {
            number(&mut self.text, size);
        }
        self.text.push(b',');
        number(&mut self.text, stream.into());
        self.text.push(b',');
        number(&mut self.text, time_us);
        self.text.push(b'\n');
        self.pending += 1;
        if self.text.len() >= BUFFER {
            self.flush();
        }
    }

    pub(super) fn flush(&mut self) {
        if self.failure.is_none()
            && let Err(error) = self.sink.write_all(&self.text)
        {
            self.failure = Some(error);
            self.lost += self.pending;
        }
        self.pending = 0;
        self.text.clear();
    }

    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush();
        match self.failure.take() {
            Some(error) => Err(error),
            None => self.sink.flush(),
        }
    }
}

impl<W: Write> Drop for Lines<W> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Appends a number's digits.
fn number(text: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(value % 10).expect("a digit");
        value /= 10;
        if value == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::{BUFFER, Lines};
    use std::io::{self, Write};

    /// Takes so many bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_full_disk_does_not_take_are_lost() {
        let mut lines = Lines::new(Disk(100));
        lines.put(b'a', 10, Some(987), 6, 5);
        lines.flush();
        assert_eq!(lines.lost(), 0);
        let long = u64::MAX;
        for lost in [0, 2, 3, 4] {
            assert_eq!(lines.lost(), lost);
            lines.put(b'a', long, Some(long), 6, long);
            if lost == 0 {
                lines.put(b'f', long, None, 6, long);
                lines.flush();
            }
        }
        assert_eq!(lines.finish().map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull));
    }

    #[test]
    fn lines_are_written_when_the_buffer_is_full() {
        let mut lines = Lines::new(Disk(0));
        let line = "a,1,2,3,4\n".len();
        let room = BUFFER - "op,id,size,stream,time_us\n".len();
        assert_eq!(room % line, 0, "the last line just fills it");
        (1..room / line).for_each(|_| lines.put(b'a', 1, Some(2), 3, 4));
        assert_eq!(lines.lost(), 0);
        lines.put(b'a', 1, Some(2), 3, 4);
        assert_eq!(lines.lost(), (room / line) as u64);
    }
}
