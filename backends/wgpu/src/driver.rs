//! One function per wgpu call, each with a typed error: what wgpu reports by scope, by callback or by panic.
use core::{
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use omniheap_seam::{Error, ErrorKind, Result};
use std::{
    panic::{catch_unwind, resume_unwind},
    sync::{Arc, mpsc},
};
use wgpu::{
    Buffer, BufferDescriptor, BufferUsages, CommandEncoder, ErrorFilter, MapMode, PollType,
    SubmissionIndex,
};

/// The shortest and the longest pause between two looks at the queue.
///
/// A submission of the engine has an index that only the engine knows, so its end cannot be waited for; and wgpu 30
/// panics when a wait with a time limit runs out while another thread empties the queue. So waits look again and again.
const PAUSE: (Duration, Duration) = (Duration::from_micros(5), Duration::from_micros(160));

/// Values of [`Error::native`] for errors of wgpu.
mod native {
    pub(super) const OUT_OF_MEMORY: i64 = 1;
    pub(super) const VALIDATION: i64 = 2;
    pub(super) const INTERNAL: i64 = 3;
}

/// Initial mapping of a new buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Ready for the queue.
    Unmapped,
    /// Ready for the host.
    Mapped,
}

/// An open device and its queue.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    lost: Arc<AtomicBool>,
}

impl Driver {
    pub(crate) fn new(device: wgpu::Device, queue: wgpu::Queue) -> Self {
        Self { device, queue, lost: Arc::default() }
    }

    /// Installs the device's handlers; only for a device that this crate opened.
    pub(crate) fn install_handlers(&self) {
        let lost = Arc::clone(&self.lost);
        self.device.set_device_lost_callback(move |reason, message| {
            tracing::error!(?reason, message, "wgpu lost the device");
            lost.store(true, Ordering::Release);
        });
        self.device.on_uncaptured_error(Arc::new(|error| {
            tracing::error!(%error, "wgpu reported an error outside of every scope");
        }));
    }

    /// `DeviceLost` from the moment on that the loss was noticed.
    pub(crate) fn check(&self) -> Result<()> {
        if self.lost.load(Ordering::Acquire) { Err(ErrorKind::DeviceLost.into()) } else { Ok(()) }
    }

    /// Polls the device for loss.
    ///
    /// wgpu drops calls on a lost device without an error, and an engine's device has the engine's loss callback. But
    /// a device that is there refuses a buffer without a usage, and a lost one says nothing.
    pub(crate) fn probe(&self) -> Result<()> {
        self.check()?;
        let scope = self.device.push_error_scope(ErrorFilter::Validation);
        let nothing = BufferDescriptor {
            label: None,
            size: 0,
            usage: BufferUsages::empty(),
            mapped_at_creation: false,
        };
        drop(self.device.create_buffer(&nothing));
        if pollster::block_on(scope.pop()).is_none() {
            self.lost.store(true, Ordering::Release);
        }
        self.check()
    }

    /// Runs calls that report by error scope, and returns the first report.
    pub(crate) fn scoped<T>(&self, calls: impl FnOnce() -> T) -> Result<T> {
        self.check()?;
        let memory = self.device.push_error_scope(ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(ErrorFilter::Internal);
        let validation = self.device.push_error_scope(ErrorFilter::Validation);
        let value = calls();
        let validation = pollster::block_on(validation.pop());
        let internal = pollster::block_on(internal.pop());
        let memory = pollster::block_on(memory.pop());
        self.probe()?;
        match memory.or(internal).or(validation) {
            None => Ok(value),
            Some(error) => Err(translate(&error)),
        }
    }

    /// Creates a buffer; `OutOfDeviceMemory` leaves the device as it was.
    pub(crate) fn create(&self, usage: BufferUsages, size: u64, start: Start) -> Result<Buffer> {
        let mapped_at_creation = start == Start::Mapped;
        let descriptor =
            BufferDescriptor { label: Some("omniheap"), size, usage, mapped_at_creation };
        self.scoped(|| self.device.create_buffer(&descriptor))
    }

    /// Records commands and submits them.
    pub(crate) fn submit(
        &self,
        record: impl FnOnce(&mut CommandEncoder),
    ) -> Result<SubmissionIndex> {
        self.scoped(|| {
            let mut encoder = self.device.create_command_encoder(&Default::default());
            record(&mut encoder);
            self.queue.submit([encoder.finish()])
        })
    }

    /// Runs callbacks, and waits first if `poll` says so.
    ///
    /// wgpu panics in here when the driver reports the loss of the device.
    pub(crate) fn poll(&self, poll: PollType) -> Result<()> {
        self.check()?;
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(poll))) {
            Ok(Ok(_)) => self.check(),
            Ok(Err(_)) => {
                self.probe()?;
                Err(Error::new(ErrorKind::Driver).with_native(native::VALIDATION))
            }
            Err(panic) => {
                // A device that is still there means that a callback of the engine panicked: the engine's business.
                self.probe()?;
                resume_unwind(panic)
            }
        }
    }

    /// Waits until everything submitted so far has finished.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.poll(PollType::wait_indefinitely())?;
        self.probe()
    }

    /// Runs callbacks until one of them has made `done` return something.
    pub(crate) fn wait_until<T>(&self, mut done: impl FnMut() -> Option<T>) -> Result<T> {
        let (mut pause, longest) = PAUSE;
        loop {
            self.poll(PollType::Poll)?;
            if let Some(value) = done() {
                return Ok(value);
            }
            self.probe()?;
            std::thread::sleep(pause);
            pause = longest.min(pause * 2);
        }
    }

    /// Maps `start..end` of a buffer, hands the buffer to `touch`, and unmaps it.
    ///
    /// `after` is the submission to wait for, where it is known; the others are looked for.
    pub(crate) fn mapped<T>(
        &self,
        buffer: &Buffer,
        mode: MapMode,
        (start, end): (u64, u64),
        after: Option<SubmissionIndex>,
        touch: impl FnOnce(&Buffer) -> Result<T>,
    ) -> Result<T> {
        let (sender, answer) = mpsc::channel();
        self.scoped(|| {
            buffer.map_async(mode, start..end, move |result| {
                // Nobody listens any more when the wait below failed.
                let _ = sender.send(result.is_ok());
            });
        })?;
        if after.is_some() {
            self.poll(PollType::Wait { submission_index: after, timeout: None })?;
        }
        let mapped = self.wait_until(|| answer.try_recv().ok())?;
        let refused = Error::new(ErrorKind::Driver).with_native(native::INTERNAL);
        let value = if mapped { touch(buffer) } else { Err(refused) };
        self.scoped(|| buffer.unmap())?;
        value
    }
}

/// Maps wgpu's three kinds of errors.
fn translate(error: &wgpu::Error) -> Error {
    let (kind, code) = match error {
        wgpu::Error::OutOfMemory { .. } => (ErrorKind::OutOfDeviceMemory, native::OUT_OF_MEMORY),
        wgpu::Error::Validation { .. } => (ErrorKind::Driver, native::VALIDATION),
        wgpu::Error::Internal { .. } => (ErrorKind::Driver, native::INTERNAL),
    };
    tracing::debug!(%error, "wgpu refused a call");
    Error::new(kind).with_native(code)
}
