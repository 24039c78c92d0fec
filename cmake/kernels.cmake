# Compiles src/compute/cpu/kernels.cpp once for each instruction set and shard, and hides everything but the entry points:
# a weak symbol compiled for AVX-512 must never be picked by the linker for code that runs on less.

set(HYALITE_SHARDS 4)
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
    set(keep)
    set(parts)
    math(EXPR last "${HYALITE_SHARDS} - 1")
    foreach(shard RANGE ${last})
      set(target kernels_${isa}_${shard})
      add_library(${target} OBJECT src/compute/cpu/kernels.cpp)
      target_link_libraries(${target} PRIVATE hyalite_flags)
      # g++ 12's SLP pass forms vfmaddsub in spite of -ffp-contract=off.
      target_compile_options(${target} PRIVATE ${HYALITE_FLAGS_${isa}} -fno-tree-slp-vectorize)
      target_compile_definitions(${target} PRIVATE HYALITE_ISA_NAME=${isa} HYALITE_SHARD=${shard}
        HYALITE_SHARDS=${HYALITE_SHARDS})
      list(APPEND keep --keep-global-symbol=hyalite_fill_${isa}_${shard})
      list(APPEND parts $<TARGET_OBJECTS:${target}>)
    endforeach()
    set(whole ${PROJECT_BINARY_DIR}/kernels/${isa}.o)
    # ld -r joins the shards and dissolves COMDAT groups, which would otherwise be merged by name across sets.
    add_custom_command(
      OUTPUT ${whole}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/kernels
      COMMAND ${HYALITE_LD} -r --force-group-allocation -o ${whole}.joined ${parts}
      COMMAND ${HYALITE_OBJCOPY} ${keep} ${whole}.joined ${whole}
      COMMAND ${CMAKE_COMMAND} -E rm ${whole}.joined
      DEPENDS ${parts}
      COMMAND_EXPAND_LISTS VERBATIM)
    set_source_files_properties(${whole} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    list(APPEND objects ${whole})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
