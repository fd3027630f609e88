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
