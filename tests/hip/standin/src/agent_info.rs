//! Answers of an agent about itself. Numbers are those of the HSA headers; sizes are those of an MI200 board.

#![expect(unsafe_code, reason = "exports C symbols")]

use crate::abi::{AgentHandle, Answer, Status};
use crate::agent::Agent;
use crate::ffi::{OutValue, export};
use crate::knobs::{knobs, log};
use crate::signal::now;
use crate::table;

export! {
    fn hsa_agent_get_info(handle: AgentHandle, attribute: u32, out: OutValue) {
        let agent = Agent::find(handle)?;
        let answer = if attribute < 0xA000 { standard(agent, attribute, out) } else { vendor(agent, attribute, out) };
        if answer.is_err() {
            log(|| format!("agent attribute {attribute:#x} is not known"));
        }
        answer
    }
}

fn is_device(agent: Agent) -> bool {
    agent != Agent::Host
}

/// Attributes that HSA defines for every vendor.
fn standard(agent: Agent, attribute: u32, out: OutValue) -> Answer {
    let device = u32::from(is_device(agent));
    match attribute {
        0 => out.text(if is_device(agent) { knobs().processor() } else { "host" }, 64),
        1 => out.text(if is_device(agent) { "AMD" } else { "CPU" }, 64),
        2 | 17 => out.set(device), // feature: kernel dispatch; kind of device
        3 => out.set(1_u32),       // machine model: large
        4 => out.set(1 - device),  // profile: full on the host
        5 => out.set(2_u32),       // rounding: near
        6 => out.set(knobs().wavefront()), // wavefront size
        7 => out.set([1024_u16; 3]), // largest group, by dimension
        8 => out.set(1024_u32),    // largest group
        9 => out.set([0x7fff_ffff_u32; 3]), // largest grid, by dimension
        10 => out.set(u32::MAX),   // largest grid
        11 => out.set(32_u32),     // barriers
        12 => out.set(128_u32),    // queues
        13 => out.set(64_u32),     // smallest queue
        14 => out.set(131_072_u32), // largest queue
        15 => out.set(0_u32),      // queue type: many producers
        16 => out.set(agent.node()), // node
        18 => out.set([16_384_u32, 8 << 20, 0, 0]), // caches
        19 => out.set(1_u64),      // instruction set
        20 => out.text("", 128),   // extensions
        21 | 22 => out.set(1_u16), // version of HSA
        24 => out.set(true),       // fast 16-bit floats
        _ => Err(Status::INVALID_ARGUMENT),
    }
}

/// Attributes that AMD added.
fn vendor(agent: Agent, attribute: u32, out: OutValue) -> Answer {
    let node = agent.node();
    match attribute {
        0xA000 => out.set(0x740f_u32),         // chip
        0xA001 => out.set(128_u32),            // cache line
        0xA002 | 0xA014 => out.set(104_u32),   // compute units
        0xA003 => out.set(1700_u32),           // clock, MHz
        0xA004 => out.set(node),               // driver's node
        0xA005 => out.set(4_u32),              // watch points
        0xA006 => out.set((0x10 + node) << 8), // PCI bus, device, function
        0xA007 => out.set(4096_u32),           // memory width, bits
        0xA008 => out.set(1600_u32),           // memory clock, MHz
        0xA009 => {
            out.text(if is_device(agent) { "Stand-in device (host memory)" } else { "host" }, 64)
        }
        0xA00A => out.set(32_u32),         // waves per compute unit
        0xA00B => out.set(4_u32),          // SIMDs per compute unit
        0xA00C => out.set(8_u32),          // shader engines
        0xA00D => out.set(1_u32),          // arrays per engine
        0xA00E => out.set([0_u64; 2]),     // HDP flush registers: none
        0xA00F | 0xA010 => out.set(0_u32), // PCI domain; cooperative queues
        0xA011 => out.text(&format!("GPU-{:016x}", 0x006f_6d6e_6900_u64 + u64::from(node)), 21),
        0xA012 => out.set(1_u32), // revision
        0xA013 => out.set(false), // direct host access to migrating memory
        0xA015 => out.set(table::free_bytes(agent.device()?)),
        0xA016 => out.set(100_000_000_u64), // timestamps per second
        _ => newer(agent, attribute, out),
    }
}

/// Attributes that AMD added later.
fn newer(agent: Agent, attribute: u32, out: OutValue) -> Answer {
    match attribute {
        0xA107 => out.set(141_u32),              // family
        0xA108 | 0xA109 => out.set(1_u32),       // firmware
        0xA10A => out.set(2_u32),                // copy engines
        0xA10B | 0xA110 => out.set(0_u32),       // copy engines between devices; IOMMU
        0xA111 => out.set(1_u32),                // dies
        0xA112 => out.set(agent.node()),         // driver's identity
        0xA113 => out.set(Agent::Host.handle()), // nearest host
        0xA114 => out.set([0_u8; 8]),            // memory properties: not an APU
        0xA116 | 0xA117 => out.set(1_u64 << 20), // scratch limits
        0xA118 => out.set([now(), now(), now(), 1_000_000_000]),
        _ => Err(Status::INVALID_ARGUMENT),
    }
}
