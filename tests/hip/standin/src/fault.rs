//! Making one call fail, from outside.
//!
//! `OMNIHEAP_HSA_FAIL=NAME:N[:STATUS]` makes the N-th call (from 1) of the function NAME answer STATUS, a hexadecimal
//! HSA status, by default `1008` (out of resources). `*` counts every function; `N+` fails that call and all after it.
//! Several are separated by commas.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use crate::abi::Status;

/// One planned failure.
#[derive(Debug)]
pub struct Fault {
    name: String,
    first: u64,
    lasts: bool,
    status: Status,
    seen: AtomicU64,
}

impl Fault {
    /// Reads one failure.
    ///
    /// # Errors
    /// Says what the text should have been.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "OMNIHEAP_HSA_FAIL={text}: give NAME:N[+][:STATUS], such as hsa_amd_vmem_map:2:1008"
            )
        };
        let mut parts = text.split(':');
        let name = parts.next().filter(|name| !name.is_empty()).ok_or_else(wrong)?.to_owned();
        let count = parts.next().ok_or_else(wrong)?;
        let first = count
            .trim_end_matches('+')
            .parse()
            .ok()
            .filter(|&first| first > 0)
            .ok_or_else(wrong)?;
        let status = match parts.next() {
            Some(status) => Status(u32::from_str_radix(status, 16).map_err(|_| wrong())?),
            None => Status::OUT_OF_RESOURCES,
        };
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Self { name, first, lasts: count.ends_with('+'), status, seen: AtomicU64::new(0) })
    }

    /// Counts a call of `name` and answers the status it must fail with, if it must.
    pub fn strike(&self, name: &str) -> Option<Status> {
        if self.name != name && self.name != "*" {
            return None;
        }
        let count = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        (count == self.first || (self.lasts && count > self.first)).then_some(self.status)
    }
}

/// Returns the planned failures, or what is wrong with them.
pub(crate) fn checked() -> &'static Result<Vec<Fault>, String> {
    static FAULTS: OnceLock<Result<Vec<Fault>, String>> = OnceLock::new();
    FAULTS.get_or_init(|| match std::env::var("OMNIHEAP_HSA_FAIL") {
        Ok(text) => text.split(',').map(Fault::parse).collect(),
        Err(_) => Ok(Vec::new()),
    })
}

/// Counts a call and answers the status it must fail with, if it must.
pub(crate) fn strike(name: &str) -> Option<Status> {
    let faults = checked().as_ref().ok()?;
    // Every fault counts the call, whichever of them answers.
    let struck: Vec<_> = faults.iter().filter_map(|fault| fault.strike(name)).collect();
    let status = struck.first().copied()?;
    eprintln!("[hsa stand-in] {name} fails with {:#x}, as OMNIHEAP_HSA_FAIL asks", status.0);
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::Fault;
    use crate::abi::Status;

    #[test]
    fn the_nth_call_fails_and_no_other() {
        let fault = Fault::parse("hsa_init:2").expect("well formed");
        let answers: Vec<_> =
            ["hsa_init", "other", "hsa_init", "hsa_init"].map(|name| fault.strike(name)).to_vec();
        assert_eq!(answers, [None, None, Some(Status::OUT_OF_RESOURCES), None]);
    }

    #[test]
    fn a_lasting_fault_counts_every_function() {
        let fault = Fault::parse("*:2+:1000").expect("well formed");
        let answers: Vec<_> = ["a", "b", "c"].map(|name| fault.strike(name)).to_vec();
        assert_eq!(answers, [None, Some(Status(0x1000)), Some(Status(0x1000))]);
    }

    #[test]
    fn malformed_faults_are_refused() {
        for text in ["", "hsa_init", "hsa_init:0", "hsa_init:x", ":1", "a:1:zz", "a:1:1:1"] {
            assert!(Fault::parse(text).is_err(), "{text}");
        }
    }
}
