# Compiles the kernels once for each instruction set, a family of ops at a time, and hides everything but one entry point
# a set: a weak symbol compiled for AVX-512 must never be picked by the linker for code that runs on less.

# GNU's own, whatever the compiler brings: lld does not dissolve groups.
find_program(HYALITE_LD NAMES ld.bfd ld REQUIRED)
find_program(HYALITE_OBJCOPY NAMES objcopy REQUIRED)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(HYALITE_ISAS x86_64_v2 avx2 avx512)
  set(HYALITE_FLAGS_x86_64_v2 -march=x86-64-v2 -DHWY_DISABLE_PCLMUL_AES)
  set(HYALITE_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2 -maes -mpclmul)
  set(HYALITE_FLAGS_avx512 -march=skylake-avx512)
else()
  set(HYALITE_ISAS neon)
  set(HYALITE_FLAGS_neon "")
endif()

function(hyalite_kernel_objects out)
  set(objects)
  foreach(isa IN LISTS HYALITE_ISAS)
    hyalite_for_families(units kernels_${isa} src/compute/cpu/kernels.cpp "${HYALITE_ELEMENTWISE}")
    add_library(kernel_set_${isa} OBJECT src/compute/cpu/kernel_set.cpp)
    target_link_libraries(kernel_set_${isa} PRIVATE hyalite_flags)
    target_compile_definitions(kernel_set_${isa} PRIVATE HYALITE_ISA_NAME=${isa})
    set(parts)
    foreach(target IN LISTS units ITEMS kernel_set_${isa})
      # g++ 12's SLP pass forms vfmaddsub in spite of -ffp-contract=off.
      target_compile_options(${target} PRIVATE ${HYALITE_FLAGS_${isa}} -fno-tree-slp-vectorize)
      list(APPEND parts $<TARGET_OBJECTS:${target}>)
    endforeach()
    set(whole ${PROJECT_BINARY_DIR}/kernels/${isa}.o)
    # ld -r joins the units and dissolves COMDAT groups, which would otherwise be merged by name across sets.
    add_custom_command(
      OUTPUT ${whole}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/kernels
      COMMAND ${HYALITE_LD} -r --force-group-allocation -o ${whole}.joined ${parts}
      COMMAND ${HYALITE_OBJCOPY} --keep-global-symbol=hyalite_fill_${isa} ${whole}.joined ${whole}
      COMMAND ${CMAKE_COMMAND} -E rm ${whole}.joined
      DEPENDS ${parts}
      COMMAND_EXPAND_LISTS VERBATIM)
    set_source_files_properties(${whole} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    list(APPEND objects ${whole})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
