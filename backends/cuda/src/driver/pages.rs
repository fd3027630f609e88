//! Virtual memory: address ranges, physical pages, mappings, and memory that other APIs share.
#![expect(unsafe_code, reason = "calls the driver")]
use super::{Driver, check};
use crate::sys::{
    Attribute, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUdeviceptr,
    CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle,
};
use core::{ffi::c_void, ptr};
use cudarc::driver::sys::{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1, CUextMemory_st,
    CUexternalMemoryHandleType_enum, CUmemAccess_flags_enum, CUmemAllocationHandleType,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType_enum, CUmemLocation,
    CUmemLocationType_enum,
};
use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::{Raw, StreamDriver};

const GRANULARITY_RECOMMENDED: u32 = 0x1;
const HANDLE_POSIX_FD: u32 = 0x1;
const EXTERNAL_DEDICATED: u32 = 0x1;

/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED`, of CUDA 12.3.
const FABRIC_SUPPORTED: u32 = 128;
/// `CU_MEM_HANDLE_TYPE_FABRIC`, of CUDA 12.3.
const HANDLE_FABRIC: u32 = 0x8;

/// `CU_MEM_LOCATION_TYPE_HOST`, of CUDA 12.2.
const LOCATION_HOST: u32 = 0x2;

/// A `CUmemAllocationProp` of host memory, whose location the bindings' enumeration does not know.
#[repr(C)]
struct HostPageProperties {
    kind: CUmemAllocationType_enum,
    requested_handle_types: u32,
    location: u32,
    location_id: i32,
    win32_meta_data: *mut c_void,
    flags: [u8; 8],
}

const _: () = assert!(size_of::<HostPageProperties>() == size_of::<CUmemAllocationProp>());

/// Sharing of physical memory with another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Not shared.
    Private,
    /// As a file descriptor.
    Exportable,
    /// As [`Exportable`](Self::Exportable), and as a handle for other nodes of the same fabric.
    Fabric,
}

impl Sharing {
    const fn handle_types(self) -> CUmemAllocationHandleType {
        CUmemAllocationHandleType(match self {
            Self::Private => 0,
            Self::Exportable => HANDLE_POSIX_FD,
            Self::Fabric => HANDLE_POSIX_FD | HANDLE_FABRIC,
        })
    }
}

impl Driver {
    fn location(&self) -> CUmemLocation {
        CUmemLocation {
            type_: CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE,
            id: self.device,
        }
    }

    /// Returns whether network cards can reach pages of the device: they reach plain memory too, so none is kept from them.
    fn has_rdma(&self) -> bool {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0
    }

    fn page_properties(&self, sharing: Sharing) -> CUmemAllocationProp {
        CUmemAllocationProp {
            type_: CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: sharing.handle_types(),
            location: self.location(),
            win32HandleMetaData: ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: u8::from(self.has_rdma()),
                usage: 0,
                reserved: [0; 4],
            },
        }
    }

    /// Returns the size that physical memory and mappings are multiples of.
    pub(crate) fn granularity(&self, sharing: Sharing) -> Result<u64> {
        let granularity = self.fns.granularity.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let properties = self.page_properties(sharing);
        let mut bytes = 0;
        // SAFETY: `bytes` is a valid out-pointer and `properties` is filled in.
        let code =
            unsafe { granularity(&raw mut bytes, &raw const properties, GRANULARITY_RECOMMENDED) };
        check(code)?;
        Ok(bytes as u64)
    }

    pub(crate) fn reserve(&self, size: usize, align: usize) -> Result<CUdeviceptr> {
        let reserve = self.fns.address_reserve.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer; zero lets the driver choose the place.
        check(unsafe { reserve(&raw mut address, size, align, 0, 0) })?;
        Ok(address)
    }

    /// # Safety
    ///
    /// The range came from [`reserve`](Self::reserve), has nothing mapped, and is freed once.
    pub(crate) unsafe fn unreserve(&self, address: CUdeviceptr, size: usize) -> Result<()> {
        let free = self.fns.address_free.ok_or(ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release_anywhere(|| unsafe { free(address, size) })
    }

    pub(crate) fn create_page(
        &self,
        size: usize,
        sharing: Sharing,
    ) -> Result<CUmemGenericAllocationHandle> {
        let create = self.fns.page_create.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let properties = self.page_properties(sharing);
        let mut page = 0;
        // SAFETY: `page` is a valid out-pointer and `properties` is filled in.
        check(unsafe { create(&raw mut page, size, &raw const properties, 0) })?;
        Ok(page)
    }

    /// Creates physical memory on the host that can be mapped at addresses of the device.
    ///
    /// A driver that knows no such memory says that an argument is wrong.
    pub(crate) fn create_host_page(&self, size: usize) -> Result<CUmemGenericAllocationHandle> {
        let create = self.fns.page_create.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let properties = HostPageProperties {
            kind: CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
            requested_handle_types: 0,
            location: LOCATION_HOST,
            location_id: 0,
            win32_meta_data: ptr::null_mut(),
            flags: [0; 8],
        };
        let mut page = 0;
        // SAFETY: `page` is a valid out-pointer; the properties are laid out as the driver's own struct, which it only reads.
        let code = unsafe { create(&raw mut page, size, (&raw const properties).cast(), 0) };
        check(code).map_err(|error| match error.kind() {
            kind if kind.is_out_of_memory() => ErrorKind::OutOfHostMemory.into(),
            ErrorKind::DeviceLost => error,
            _ => {
                ErrorKind::Unsupported.because("the driver maps no host memory at device addresses")
            }
        })?;
        Ok(page)
    }

    /// Creates physical memory with every kind of handle that the device has.
    ///
    /// A device may say that it has fabric handles and refuse them, because nobody gave this process a channel of the fabric.
    pub(crate) fn create_exportable(&self, size: usize) -> Result<CUmemGenericAllocationHandle> {
        if self.numbered_attribute(FABRIC_SUPPORTED) == 0 {
            return self.create_page(size, Sharing::Exportable);
        }
        self.create_page(size, Sharing::Fabric).or_else(|error| match error.kind() {
            kind if kind.is_out_of_memory() || kind == ErrorKind::DeviceLost => Err(error),
            _ => self.create_page(size, Sharing::Exportable),
        })
    }

    /// # Safety
    ///
    /// `page` came from this driver, and is released once.
    pub(crate) unsafe fn release_page(&self, page: CUmemGenericAllocationHandle) -> Result<()> {
        let release = self.fns.page_release.ok_or(ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release_anywhere(|| unsafe { release(page) })
    }

    /// # Safety
    ///
    /// The range is reserved and unmapped, and `page` is a live page of this driver with `size` bytes.
    pub(crate) unsafe fn map(
        &self,
        address: CUdeviceptr,
        size: usize,
        page: CUmemGenericAllocationHandle,
    ) -> Result<()> {
        let map = self.fns.page_map.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { map(address, size, 0, page, 0) })
    }

    /// Allows this device to read and write a mapped range.
    ///
    /// # Safety
    ///
    /// The whole range is mapped.
    pub(crate) unsafe fn allow(&self, address: CUdeviceptr, size: usize) -> Result<()> {
        let access = self.fns.page_access.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let description = CUmemAccessDesc {
            location: self.location(),
            flags: CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: one description is passed; the caller promises the range.
        check(unsafe { access(address, size, &raw const description, 1) })
    }

    /// # Safety
    ///
    /// The range covers whole mappings, and no device work uses it.
    pub(crate) unsafe fn unmap(&self, address: CUdeviceptr, size: usize) -> Result<()> {
        let unmap = self.fns.page_unmap.ok_or(ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release_anywhere(|| unsafe { unmap(address, size) })
    }

    /// Returns a file descriptor for physical memory; the caller closes it.
    ///
    /// # Safety
    ///
    /// `page` is live and was made by [`create_exportable`](Self::create_exportable).
    pub(crate) unsafe fn export_page(&self, page: CUmemGenericAllocationHandle) -> Result<i32> {
        let export = self.fns.handle_export.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let mut fd = -1i32;
        // SAFETY: for this handle type the driver writes one `int`; the caller promises the page.
        let code = unsafe { export((&raw mut fd).cast::<c_void>(), page, HANDLE_POSIX_FD, 0) };
        check(code)?;
        Ok(fd)
    }

    /// Physical memory that CUDA exported. The descriptor stays the caller's.
    pub(crate) fn import_page(&self, fd: i32) -> Result<CUmemGenericAllocationHandle> {
        let import = self.fns.handle_import.ok_or(ErrorKind::Unsupported)?;
        let fd = usize::try_from(fd).map_err(|_| ErrorKind::OutOfRange)?;
        let _current = self.enter()?;
        let mut page = 0;
        let handle = ptr::without_provenance_mut::<c_void>(fd);
        // SAFETY: `page` is a valid out-pointer; the driver checks the descriptor's number and kind.
        check(unsafe { import(&raw mut page, handle, HANDLE_POSIX_FD) })?;
        Ok(page)
    }

    /// Memory that another API exported. On success the driver owns the descriptor.
    ///
    /// Memory that belongs to one resource of that API alone must be declared so, and nothing tells which it is.
    pub(crate) fn import_external(&self, fd: i32, size: u64) -> Result<Raw<CUextMemory_st>> {
        let shared = self.import_declared(fd, size, 0);
        shared
            .or_else(|error| self.import_declared(fd, size, EXTERNAL_DEDICATED).map_err(|_| error))
    }

    fn import_declared(&self, fd: i32, size: u64, flags: u32) -> Result<Raw<CUextMemory_st>> {
        let import = self.fns.external_import.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let description = CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: CUexternalMemoryHandleType_enum::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            handle: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 { fd },
            size,
            flags,
            reserved: [0; 16],
        };
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` is a valid out-pointer and `description` is filled in.
        check(unsafe { import(&raw mut memory, &raw const description) })?;
        Ok(Raw(memory))
    }

    /// Returns the address of the first `size` bytes of external memory.
    ///
    /// # Safety
    ///
    /// `memory` is live and came from [`import_external`](Self::import_external).
    pub(crate) unsafe fn external_address(
        &self,
        memory: Raw<CUextMemory_st>,
        size: u64,
    ) -> Result<CUdeviceptr> {
        let buffer = self.fns.external_buffer.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let description =
            CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 0, size, flags: 0, reserved: [0; 16] };
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer; the caller promises the memory.
        check(unsafe { buffer(&raw mut address, memory.0, &raw const description) })?;
        Ok(address)
    }

    /// # Safety
    ///
    /// `memory` came from [`import_external`](Self::import_external), its addresses were freed, and nothing uses it.
    pub(crate) unsafe fn destroy_external(&self, memory: Raw<CUextMemory_st>) -> Result<()> {
        let destroy = self.fns.external_destroy.ok_or(ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { destroy(memory.0) })
    }
}
