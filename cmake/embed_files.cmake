# Texts that the library carries: the sources of the ops, and explain's page.

function(hyalite_embed out)
  set(generated)
  set(dir ${PROJECT_BINARY_DIR}/embedded)
  if(EXISTS ${PROJECT_SOURCE_DIR}/cmake/embed_list.cmake)
    include(${PROJECT_SOURCE_DIR}/cmake/embed_list.cmake)
  endif()
  set(${out} ${generated} PARENT_SCOPE)
endfunction()
