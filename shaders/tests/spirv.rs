//! The SPIR-V that is checked in is what the WGSL compiles to, and launches bring what the WGSL declares.
//!
//! `cargo xtask spirv` compiles it again.
use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, Module, StorageAccess};
use omniheap_seam::{Kernel, Slot};
use omniheap_shaders::{
    BILATERAL, CONVOLUTION, JUDGED, MATMUL, PROBES, Placed, REDUCTION, RESIDUE, SCALE,
};

/// Stands for the words of shared memory until SPIR-V is made; a number that no kernel uses.
const SHARED_WORDS: u32 = 16_411;

/// Every file of `spirv/` with its kernels, in the order in which the build script takes them.
fn packs() -> [(&'static str, Vec<Kernel>); 2] {
    let kernels = [SCALE, MATMUL, REDUCTION, RESIDUE].into_iter();
    let lookups = PROBES.iter().chain(JUDGED).map(|lookup| lookup.table);
    [
        (
            "kernels",
            kernels.chain([CONVOLUTION, BILATERAL].into_iter().flat_map(variants)).collect(),
        ),
        ("lookups", lookups.flat_map(variants).collect()),
    ]
}

fn variants(kernel: Placed) -> impl Iterator<Item = Kernel> {
    [Some(kernel.constant), Some(kernel.device), kernel.shared].into_iter().flatten()
}

fn parse(kernel: &Kernel) -> Module {
    naga::front::wgsl::parse_str(kernel.wgsl)
        .unwrap_or_else(|why| panic!("{}: {}", kernel.name, why.emit_to_string(kernel.wgsl)))
}

#[test]
fn checked_in_spirv_is_what_the_wgsl_compiles_to() {
    let renew = std::env::var("OMNIHEAP_SPIRV").is_ok_and(|word| word == "renew");
    for (name, kernels) in packs() {
        let compiled: Vec<_> = kernels.iter().map(|one| spirv(one.name, &parse(one))).collect();
        if renew {
            write(name, &compiled);
            continue;
        }
        for (kernel, words) in kernels.iter().zip(compiled) {
            assert!(
                kernel.spirv == words,
                "{}: the SPIR-V is not that of this source; run `cargo xtask spirv`\n{}",
                kernel.name,
                kernel.wgsl
            );
        }
    }
}

fn write(name: &str, modules: &[Vec<u32>]) {
    let count = |module: &Vec<u32>| u32::try_from(module.len()).expect("a kernel is small");
    let words = modules.iter().flat_map(|one| core::iter::once(count(one)).chain(one.clone()));
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    let path = format!("{}/spirv/{name}.spv", env!("CARGO_MANIFEST_DIR"));
    std::fs::write(path, bytes).expect("the sources can be written");
}

#[test]
fn a_launch_brings_what_the_wgsl_declares() {
    for (_, kernels) in packs() {
        for kernel in kernels {
            let module = parse(&kernel);
            let entry = &module.entry_points[0];
            assert_eq!(entry.name, kernel.name, "the entry point is called like the folder");
            assert_eq!(entry.workgroup_size, kernel.group, "{}", kernel.name);
            assert_eq!(slots(&module), kernel.slots, "{}", kernel.name);
            assert_eq!(parameters(&module), kernel.parameters, "{}", kernel.name);
            assert_eq!(kernel.check(), Ok(()), "{}", kernel.name);
        }
    }
}

/// Returns the slots, in the order of their bindings.
fn slots(module: &Module) -> Vec<Slot> {
    let mut slots: Vec<_> = module
        .global_variables
        .iter()
        .filter_map(|(_, variable)| {
            let slot = match variable.space {
                AddressSpace::Uniform => Slot::Constant,
                AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => {
                    Slot::Write
                }
                AddressSpace::Storage { .. } => Slot::Read,
                _ => return None,
            };
            Some((variable.binding.expect("buffers have bindings").binding, slot))
        })
        .collect();
    slots.sort_unstable_by_key(|slot| slot.0);
    assert!((0u32..).zip(&slots).all(|(index, slot)| slot.0 == index), "bindings without gaps");
    slots.into_iter().map(|slot| slot.1).collect()
}

/// Returns the bytes of the parameters.
fn parameters(module: &Module) -> u32 {
    let variable = module.global_variables.iter().find(|(_, v)| v.space == AddressSpace::Immediate);
    variable.map_or(0, |(_, variable)| module.types[variable.ty].inner.size(module.to_ctx()))
}

fn spirv(name: &str, module: &Module) -> Vec<u32> {
    let info = Validator::new(ValidationFlags::all(), Capabilities::IMMEDIATES)
        .validate(module)
        .unwrap_or_else(|why| panic!("shaders/{name}: {}", why.into_inner()));
    let values = [("shared_words".to_owned(), f64::from(SHARED_WORDS))];
    let values = if module.overrides.is_empty() { [].into() } else { values.into_iter().collect() };
    let (module, info) =
        naga::back::pipeline_constants::process_overrides(module, &info, None, &values)
            .unwrap_or_else(|why| panic!("shaders/{name}: {why}"));
    let options = spv::Options {
        lang_version: (1, 0),
        flags: spv::WriterFlags::empty(),
        // As CUDA has it: what nobody wrote is not zero. Kernels write before they read.
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        // Kernels end and stay inside their arguments: that is what a launch promises.
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..spv::Options::default()
    };
    let words = spv::write_vec(&module, &info, &options, None)
        .unwrap_or_else(|why| panic!("shaders/{name}: {why}"));
    specialize(words)
}

/// Makes the stand-in for the words of shared memory a specialization constant, number 0.
fn specialize(mut words: Vec<u32>) -> Vec<u32> {
    const CONSTANT: u32 = 43;
    const SPEC_CONSTANT: u32 = 50;
    const DECORATE: u32 = 71;
    const SPEC_ID: u32 = 1;
    let mut at = 5;
    let (mut found, mut types) = (None, None);
    while at < words.len() {
        let (count, code) = (words[at] >> 16, words[at] & 0xffff);
        // The first type ends the decorations.
        if (19..=33).contains(&code) && types.is_none() {
            types = Some(at);
        }
        if code == CONSTANT && count == 4 && words[at + 3] == SHARED_WORDS {
            words[at] = count << 16 | SPEC_CONSTANT;
            found = Some(words[at + 2]);
        }
        at += count as usize;
    }
    if let (Some(id), Some(types)) = (found, types) {
        words.splice(types..types, [4 << 16 | DECORATE, id, SPEC_ID, 0]);
    }
    words
}
