//! The runtime as a whole: start, end, what it supports.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::c_void;

use crate::abi::Status;
use crate::ffi::{Out, OutValue, export};
use crate::knobs::{self, knobs, log};
use crate::signal::now;
use crate::{fault, pages};

/// `HSA_EXTENSION_AMD_LOADER`
const LOADER: u16 = 0x201;

export! {
    fn hsa_init() {
        let wrong = [knobs::checked().as_ref().err(), fault::checked().as_ref().err()];
        for message in wrong.iter().flatten() {
            eprintln!("[hsa stand-in] {message}");
        }
        if wrong.iter().any(Option::is_some) { Err(Status::OUT_OF_RESOURCES) } else { Ok(()) }
    }

    fn hsa_shut_down() {
        Ok(())
    }

    fn hsa_status_string(status: Status, out: Out<*const u8>) {
        let text: &'static [u8] = match status {
            Status::SUCCESS => b"success\0",
            Status::OUT_OF_RESOURCES => b"out of resources\0",
            Status::INVALID_ARGUMENT => b"invalid argument\0",
            Status::INVALID_ALLOCATION => b"invalid allocation\0",
            _ => b"an HSA error\0",
        };
        out.set(text.as_ptr())
    }

    fn hsa_system_get_info(attribute: u32, out: OutValue) {
        match attribute {
            0 | 1 | 0x207 => out.set(1_u16), // version of HSA, major version of AMD's extension
            2 => out.set(now()),
            3 => out.set(1_000_000_000_u64),
            4 => out.set(u64::MAX),
            5 => out.set(0_u32),
            6 => out.set(1_u32),
            7 => out.text("", 128),
            0x201 => out.set(knobs().svm),
            0x202 | 0x206 => out.set(knobs().xnack),
            0x203 | 0x204 => out.set(false), // mwaitx, dma-buf
            0x205 => out.set(knobs().vmm),
            0x208 => out.set(8_u16),
            _ => {
                log(|| format!("system attribute {attribute:#x} is not known"));
                Err(Status::INVALID_ARGUMENT)
            }
        }
    }

    fn hsa_system_get_major_extension_table(extension: u16, _version: u16, size: usize, table: Out<u8>) {
        if table.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // A table without functions: HIP asks for the loader's and does not need it.
        pages::write(table.address(), &vec![0; size]);
        if extension == LOADER { Ok(()) } else { Err(Status::ERROR) }
    }

    fn hsa_system_extension_supported(_extension: u16, _major: u16, _minor: u16, out: OutValue) {
        out.set(false)
    }

    fn hsa_amd_register_system_event_handler(_callback: *const c_void, _data: *mut c_void) {
        Ok(())
    }

    fn hsa_amd_enable_logging(_flags: *const u8, _file: *mut c_void) {
        Ok(())
    }
}
