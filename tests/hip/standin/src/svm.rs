//! Managed memory. Here it is host memory that every agent reaches, so attributes are taken and change nothing.

#![expect(unsafe_code, reason = "exports C symbols")]

use crate::abi::{Address, AgentHandle, SignalHandle, Status, SvmPair};
use crate::agent::Agent;
use crate::ffi::{In, Out, export};
use crate::signal::Signal;
use crate::{copy, pages};

export! {
    fn hsa_amd_svm_attributes_set(_address: Address, _size: u64, list: In<SvmPair>, count: usize) {
        for pair in list.list(count)? {
            crate::knobs::log(|| format!("managed memory attribute {} = {:#x}", pair.attribute, pair.value));
        }
        Ok(())
    }

    fn hsa_amd_svm_attributes_get(_address: Address, _size: u64, list: Out<SvmPair>, count: usize) {
        // Every attribute reads as 0: no preference, no prefetch. C may ask for several at once.
        let start = list.address();
        for index in 0..count {
            let offset = u64::try_from(index * size_of::<SvmPair>()).map_err(|_| Status::INVALID_ARGUMENT)?;
            pages::write(start + offset + 8, &0_u64.to_ne_bytes());
        }
        Ok(())
    }

    fn hsa_amd_svm_prefetch_async(
        address: Address, _size: u64, agent: AgentHandle, count: u32, list: In<SignalHandle>, done: SignalHandle,
    ) {
        Agent::find(agent)?;
        copy::start(address.0, address.0, 0, copy::dependencies(count, list)?, Signal::find_optional(done)?);
        Ok(())
    }
}
