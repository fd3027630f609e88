//! What a [`Device`](crate::Device) does for every backend over streams, under the backend's own name.

/// Implements, for a backend with a field `device`, what its [`Device`](crate::Device) does: the capabilities `Transfer`,
/// `Map`, `Address`, `Timelines` and `Launch` of the seam, and what backends over streams have beside them.
///
/// The caller names the backend, its driver, and the kind of its blocks.
#[macro_export]
macro_rules! forward {
    ($backend:ident, $driver:ty, $kind:ty) => {
        impl $backend {
            /// What the self-test found when the device was opened.
            #[must_use]
            pub fn findings(&self) -> &[$crate::Finding] {
                self.device.findings()
            }

            /// Events that are kept for later marks; it stays small however many marks are made.
            #[must_use]
            pub fn spare_events(&self) -> usize {
                self.device.timelines().spare_events()
            }

            /// Calls nothing any more that would spoil a capture, until [`end_capture`](Self::end_capture) was called as
            /// often: marks of [`TimelineId::ALL`](omniheap_core::TimelineId::ALL) are not reached meanwhile. Call it before a
            /// capture begins.
            pub fn begin_capture(&self) {
                self.device.timelines().begin_capture();
            }

            /// Ends what [`begin_capture`](Self::begin_capture) began.
            pub fn end_capture(&self) {
                self.device.timelines().end_capture();
            }

            /// Builds the kernel that carries batches of copies now, not with the first batch; does nothing where opening
            /// the device has done so.
            ///
            /// Loading device code may wait for kernels that run: call it before one that waits for the host.
            ///
            /// # Errors
            ///
            /// Why it cannot be built; batches are then copied one by one.
            pub fn prepare_batches(&self) -> core::result::Result<(), $crate::BuildError> {
                self.device.prepare_batches()
            }

            /// Runs a kernel, in timeline order.
            ///
            /// # Errors
            ///
            /// `ZeroSize` for an empty grid or group, `ExceedsLimit` for more threads or shared memory than the device has,
            /// `Foreign` for another device's kernel, `NoSuchTimeline`, `DeviceLost`.
            ///
            /// # Safety
            ///
            /// - `arguments` are as many, and of the types, as the kernel declares.
            /// - What the kernel does with them touches only memory that is live until it has run, in an order that the
            ///   timelines give.
            pub unsafe fn launch(
                &self,
                on: $crate::seam::TimelineId,
                kernel: &$crate::Kernel<$driver>,
                launch: $crate::Launch,
                arguments: &[$crate::Argument],
            ) -> $crate::seam::Result<()> {
                // SAFETY: the caller's promise.
                unsafe { self.device.launch(on, kernel, launch, arguments) }
            }

            /// Copies rows, in timeline order. The rectangles must not overlap.
            ///
            /// # Errors
            ///
            /// `OutOfRange`, `Foreign`, `NoSuchTimeline`, `ExceedsLimit` (pitch), `DeviceLost`.
            pub fn copy_rows(
                &self,
                on: $crate::seam::TimelineId,
                rows: $crate::Rows<'_, $kind>,
            ) -> $crate::seam::Result<()> {
                self.device.copy_rows(on, rows)
            }

            /// Copies bytes to a block of another opened device, on a timeline of this one.
            ///
            /// Nothing orders it against the other device's timelines: wait for a mark of `on` before the bytes are used there.
            ///
            /// # Errors
            ///
            /// As for `Transfer::copy`.
            pub fn copy_to_peer(
                &self,
                on: $crate::seam::TimelineId,
                from: $crate::seam::Place<'_, $crate::Block<$kind>>,
                peer: &Self,
                to: $crate::seam::Place<'_, $crate::Block<$kind>>,
                size: u64,
            ) -> $crate::seam::Result<()> {
                self.device.copy_to_peer(on, from, &peer.device, to, size)
            }

            /// Makes a handle that another process opens with [`open_ipc`](Self::open_ipc).
            ///
            /// # Errors
            ///
            /// `Foreign` for another backend's block, `Unsupported` for one that is no plain device memory: allocate such a
            /// block with `Export` instead. Otherwise what the driver says.
            pub fn ipc_handle(
                &self,
                block: &$crate::Block<$kind>,
            ) -> $crate::seam::Result<$crate::IpcHandle> {
                self.device.ipc_handle(block)
            }

            /// Opens memory of another process. Freed as any block, which leaves the memory to its owner.
            ///
            /// # Errors
            ///
            /// `Foreign` when the device differs, `Unsupported` for a heap that is not device memory, `ExceedsLimit` when the
            /// memory has fewer bytes than the handle says, or what the driver says: a process cannot open its own handle.
            pub fn open_ipc(
                &self,
                heap: $crate::seam::HeapId,
                handle: &$crate::IpcHandle,
            ) -> $crate::seam::Result<$crate::Block<$kind>> {
                self.device.open_ipc(heap, handle)
            }
        }

        // SAFETY: the device keeps every access inside the place's own block.
        unsafe impl $crate::seam::Transfer for $backend {
            fn write(
                &self,
                on: $crate::seam::TimelineId,
                to: $crate::seam::Place<'_, $crate::Block<$kind>>,
                bytes: &[u8],
            ) -> $crate::seam::Result<()> {
                self.device.write(on, to, bytes)
            }

            fn read(
                &self,
                on: $crate::seam::TimelineId,
                from: $crate::seam::Place<'_, $crate::Block<$kind>>,
                bytes: &mut [u8],
            ) -> $crate::seam::Result<()> {
                self.device.read(on, from, bytes)
            }

            fn fill(
                &self,
                on: $crate::seam::TimelineId,
                to: $crate::seam::Place<'_, $crate::Block<$kind>>,
                size: u64,
                value: u8,
            ) -> $crate::seam::Result<()> {
                self.device.fill(on, to, size, value)
            }

            fn copy(
                &self,
                on: $crate::seam::TimelineId,
                moves: &[$crate::seam::Move<'_, $crate::Block<$kind>>],
            ) -> $crate::seam::Result<()> {
                self.device.copy(on, moves)
            }
        }

        impl $crate::seam::Map for $backend {
            fn map(
                &self,
                block: &$crate::Block<$kind>,
            ) -> $crate::seam::Result<core::ptr::NonNull<u8>> {
                self.device.map(block)
            }

            fn flush(
                &self,
                block: &$crate::Block<$kind>,
                offset: u64,
                size: u64,
            ) -> $crate::seam::Result<()> {
                self.device.flush(block, offset, size)
            }

            fn invalidate(
                &self,
                block: &$crate::Block<$kind>,
                offset: u64,
                size: u64,
            ) -> $crate::seam::Result<()> {
                self.device.flush(block, offset, size)
            }
        }

        impl $crate::seam::Address for $backend {
            fn address(&self, block: &$crate::Block<$kind>) -> u64 {
                block.address()
            }
        }

        impl $crate::seam::Timelines for $backend {
            fn open(&self) -> $crate::seam::Result<$crate::seam::TimelineId> {
                self.device.timelines().open()
            }

            fn close(&self, timeline: $crate::seam::TimelineId) -> $crate::seam::Result<()> {
                self.device.timelines().close(timeline)
            }

            fn mark(
                &self,
                timeline: $crate::seam::TimelineId,
            ) -> $crate::seam::Result<$crate::seam::Epoch> {
                self.device.timelines().mark(timeline)
            }

            fn reached(
                &self,
                timeline: $crate::seam::TimelineId,
            ) -> $crate::seam::Result<$crate::seam::Epoch> {
                self.device.timelines().reached(timeline)
            }

            fn wait(&self, point: $crate::seam::Point) -> $crate::seam::Result<()> {
                self.device.timelines().wait(point)
            }

            fn order(
                &self,
                timeline: $crate::seam::TimelineId,
                point: $crate::seam::Point,
            ) -> $crate::seam::Result<()> {
                self.device.order(timeline, point)
            }
        }

        impl $crate::seam::Launch for $backend {
            fn load(
                &self,
                kernel: &$crate::seam::Kernel,
                shared: u64,
            ) -> $crate::seam::Result<$crate::seam::ProgramId> {
                self.device.load(kernel, shared)
            }

            fn unload(&self, program: $crate::seam::ProgramId) -> $crate::seam::Result<()> {
                self.device.unload(program)
            }

            unsafe fn launch(
                &self,
                on: $crate::seam::TimelineId,
                program: $crate::seam::ProgramId,
                groups: [u32; 3],
                arguments: &[$crate::seam::Argument<'_, $crate::Block<$kind>>],
                parameters: &[u8],
            ) -> $crate::seam::Result<()> {
                // SAFETY: the caller's promise.
                unsafe { self.device.launch_program(on, program, groups, arguments, parameters) }
            }
        }
    };
}
