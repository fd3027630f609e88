//! Chrome's trace-event JSON, which Perfetto and `chrome://tracing` open.

use crate::event::{AllocationId, Backing, Event, Op, Rung};
use crate::trace::Trace;
use std::io::{self, BufWriter, Write};

/// Bytes of a bar's name at most. Paths may be as long as a trace has labels; the file must not grow with their product.
const MAX_NAME: usize = 256;

/// Level of detail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detail {
    /// Counters of live and reserved bytes, failures and moves.
    #[default]
    Counters,
    /// Also one bar for each allocation, from its birth to its end: large files.
    Allocations,
}

/// Writes `trace` as trace-event JSON. Events of one time share one counter sample; of a label's path, a bar shows the last 256
/// bytes.
///
/// # Errors
/// Those of `sink`.
pub fn write(trace: &Trace, detail: Detail, mut sink: impl Write) -> io::Result<()> {
    write_to(trace, detail, &mut sink)
}

/// Writes without generics, so that it is compiled once, and here.
fn write_to(trace: &Trace, detail: Detail, sink: &mut dyn Write) -> io::Result<()> {
    let mut writer = Writer { out: BufWriter::new(sink), trace, detail, live: 0, reserved: 0 };
    let name = serde_json::to_string(&trace.meta().title)?;
    writeln!(writer.out, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    write!(
        writer.out,
        "{{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\"args\":{{\"name\":{name}}}}}"
    )?;
    let events = trace.events();
    for (index, event) in events.iter().enumerate() {
        writer.event(event)?;
        if events.get(index + 1).is_none_or(|next| next.time_us != event.time_us) {
            writer.counters(event.time_us)?;
        }
    }
    writeln!(writer.out, "\n]}}")?;
    writer.out.flush()
}

struct Writer<'t, W: Write> {
    out: BufWriter<W>,
    trace: &'t Trace,
    detail: Detail,
    live: u64,
    reserved: u64,
}

impl<W: Write> Writer<'_, W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let at = event.time_us;
        match event.op {
            Op::Allocate { id, size, stream, .. } => {
                self.live += size;
                self.bar(
                    'b',
                    id,
                    at,
                    &format!(",\"args\":{{\"bytes\":{size},\"stream\":{}}}", stream.0),
                )
            }
            Op::FreeCompleted { id, size, .. } => {
                self.live -= size;
                self.bar('e', id, at, "")
            }
            Op::BlockAllocate { size: bytes, backing: Backing::Memory, .. }
            | Op::PagesTake { bytes, .. } => {
                self.reserved += bytes;
                Ok(())
            }
            Op::BlockFree { size: bytes, backing: Backing::Memory, .. }
            | Op::PagesReturn { bytes, .. } => {
                self.reserved -= bytes;
                Ok(())
            }
            Op::OutOfMemory { size, rung: Rung::Failed, .. } => {
                self.instant("out of memory", at, size)
            }
            Op::Move { offset, .. } => self.instant("move", at, offset),
            Op::FreeRequested { .. }
            | Op::Bind { .. }
            | Op::BlockOffset { .. }
            | Op::Use { .. }
            | Op::Reside { .. }
            | Op::HostPagesTake { .. }
            | Op::HostPagesReturn { .. }
            | Op::BlockAllocate { .. }
            | Op::BlockFree { .. }
            | Op::OutOfMemory { .. } => Ok(()),
        }
    }

    fn counters(&mut self, at: u64) -> io::Result<()> {
        let (live, reserved) = (self.live, self.reserved);
        write!(
            self.out,
            ",\n{{\"ph\":\"C\",\"pid\":1,\"ts\":{at},\"name\":\"live bytes\",\"args\":{{\"bytes\":{live}}}}}"
        )?;
        if reserved == 0 {
            return Ok(());
        }
        write!(
            self.out,
            ",\n{{\"ph\":\"C\",\"pid\":1,\"ts\":{at},\"name\":\"reserved bytes\",\"args\":{{\"bytes\":{reserved}}}}}"
        )
    }

    /// One end of an allocation's bar. Both ends carry the name: viewers match by it too.
    fn bar(&mut self, phase: char, id: AllocationId, at: u64, more: &str) -> io::Result<()> {
        if self.detail == Detail::Counters {
            return Ok(());
        }
        let path = self.trace.labels().tail(self.trace.label_of(id), MAX_NAME);
        let name = serde_json::to_string(if path.is_empty() { "allocation" } else { &path })?;
        let id = id.0;
        write!(
            self.out,
            ",\n{{\"ph\":\"{phase}\",\"cat\":\"allocation\",\"id\":{id},\"pid\":1,\"tid\":1,\"ts\":{at},\"name\":{name}{more}}}"
        )
    }

    fn instant(&mut self, name: &str, at: u64, bytes: u64) -> io::Result<()> {
        write!(
            self.out,
            ",\n{{\"ph\":\"i\",\"s\":\"p\",\"pid\":1,\"tid\":1,\"ts\":{at},\"name\":\"{name}\",\"args\":{{\"bytes\":{bytes}}}}}"
        )
    }
}
